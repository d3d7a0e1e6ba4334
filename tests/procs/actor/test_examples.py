"""The examples of this room end as they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("geometry", "dp=3 x tp=2 has 6 places"),
        ("controllers", "the best score is 102"),
        ("messaging", "who rang heard: come in"),
        ("errors", "and its owner was told of procs1 at {'hosts': 0, 'gpus': 1}"),
        ("waiting", "the hosts waited again, and have ended"),
        ("mesh", "all processes are gone"),
        ("restarts", "the third death in a row was told: 3 failures in 60 s, 2 allowed"),
        ("spawning", "all processes are gone, and then the host"),
        ("workspace", "all processes are gone"),
        ("supervision", "2 of 3 workers went on, w1 was started again"),
    ],
)
def test_an_example_reaches_its_end(name, ending):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(ROOT / "src")},
        timeout=50,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == ending
    assert done.stderr == ""
