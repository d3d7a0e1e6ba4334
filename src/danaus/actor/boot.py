"""How another process of ours is started from this one's Python, wherever the package lies."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[2])


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``main()`` of ``module`` with ``arguments`` in ``sys.argv``."""
    code = f"import sys; sys.path.insert(0, {_ROOT!r}); from {module} import main; main()"
    return [sys.executable, "-c", code, *arguments]
