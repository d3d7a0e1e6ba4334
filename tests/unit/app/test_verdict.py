"""The end of a demo: the verdict is told, whatever else cannot be."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from danaus.app import picture
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import RunResult
from danaus.app.verdict import Ending, show
from danaus.core.errors import NoQuorum
from danaus.testing.run_folders import tell_demo

SHA = "ab" * 32


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: it takes seconds, and nothing here looks at it."""
    monkeypatch.setattr(picture, "draw", lambda *_, **__: None)


def _ending(sha256: str = SHA) -> Ending:
    return Ending(RunResult(100, sha256, ("replica-0",), 3))


def _shown(path: Path, ours: Ending, theirs: Ending) -> tuple[int, str]:
    out = io.StringIO()
    code = show(RunFolder.open(path), ours, theirs, console=Console(file=out, width=200))
    return code, out.getvalue()


def test_a_report_that_cannot_be_written_hides_no_verdict(tmp_path: Path) -> None:
    tell_demo(tmp_path)
    (tmp_path / "report.html").mkdir()

    code, told = _shown(tmp_path, _ending(), _ending())

    assert code == 0
    assert "no report: Is a directory; write it later: danaus report" in told
    assert told.splitlines()[-1].startswith(f"SAME BITS sha256 {SHA} at step 100 after 4 faults")


def test_other_final_bits_and_a_failed_run_are_told_and_1(tmp_path: Path) -> None:
    tell_demo(tmp_path)

    code, told = _shown(tmp_path, _ending(), _ending("cd" * 32))
    assert code == 1
    assert "DIFFERENT BITS in the final state after step 100" in told

    failed = Ending(error=NoQuorum(reason="all are gone", to_do="resume"))
    code, told = _shown(tmp_path, failed, _ending())
    assert code == 1
    assert "NOT COMPARED to the end: the run failed: no quorum: all are gone; resume" in told
