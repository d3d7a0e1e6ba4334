"""Where the plans of failed runs are kept, so that none is lost with a screenful of output."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.simulation.engine import Violation


def kept(violation: Violation, replay: str) -> Violation:
    """Write down how a failed run is replayed; return the violation that tells it."""
    folder = Path(tempfile.gettempdir()) / f"danaus-simulation-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"failed-{os.getpid()}.txt"
    with file.open("a") as lines:
        lines.write(f"# {violation}\n{replay}\n")
    return Violation(violation.label, f"{violation}\nreplay: {replay}\nkept in: {file}")
