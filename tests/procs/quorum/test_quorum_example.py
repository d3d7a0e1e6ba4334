"""The quorum example runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_quorum_example() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quorum.py")],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert "a/0#0 is in quorum 1.1: a b c" in lines[0]
    assert [line.rpartition(": ")[2] for line in lines[2:4]] == ["a c", "a c"]
    assert lines[-1].startswith("b/0#1")
    assert lines[-1].endswith(": a b c")
