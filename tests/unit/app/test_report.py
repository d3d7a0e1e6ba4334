"""The report: everything in one page, whatever the run left behind."""

from __future__ import annotations

import builtins
import io
import re
import struct
from pathlib import Path

import pytest
from rich.console import Console

from danaus.app import picture
from danaus.app.fault_table import fault_table, seconds
from danaus.app.picture import spread
from danaus.app.report import describe, goodput, tokens_per_s, write_report
from danaus.app.run_record import Happening, read_run
from danaus.app.timeline import faults
from danaus.core.errors import ConfigError
from danaus.testing.run_folders import StoryTeller, tell_demo


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few pixels: most of the time goes into them."""
    monkeypatch.setattr(picture, "_DPI", 20)


def _size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def _text(page: str) -> str:
    return re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)


def test_a_report_holds_the_picture_and_every_fault(tmp_path: Path) -> None:
    tell_demo(tmp_path)
    report = write_report(tmp_path)

    assert report.png is not None
    width, height = _size(report.png.read_bytes())
    assert width == 220
    assert height > 120
    page = report.html.read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "replica-2: worker hung (SIGSTOP)" in page
    assert "SAME BITS in all 100 steps" in page
    assert "finished." in page
    assert "step.num_steps = 100" in page
    assert not re.search(r"(src|href)=[\"']?http", page), "it must need nothing beside it"


def test_what_a_run_says_is_escaped(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(3)
    story.record("run_failed", error="X", text="<script>alert(1)</script>")
    page = _text(write_report(tmp_path).html.read_text())

    assert "<script>" not in page
    assert "failed: &lt;script&gt;" in page


@pytest.mark.parametrize("part", [0.0, 0.02, 0.3, 0.61])
def test_a_run_killed_midway_has_a_report_of_what_there_is(tmp_path: Path, part: float) -> None:
    tell_demo(tmp_path)
    for path in [tmp_path / "journal.jsonl", *tmp_path.glob("ledger/*")]:
        raw = path.read_bytes()
        path.write_bytes(raw[: int(len(raw) * part)])
    report = write_report(tmp_path)

    assert "not finished: it is running, or was killed." in report.html.read_text()
    assert report.png is not None


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    page = write_report(tmp_path).html.read_text()

    assert "not finished" in page


def test_a_folder_that_is_no_run_has_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        write_report(tmp_path)


def test_without_matplotlib_the_page_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args)  # type: ignore[arg-type]

    tell_demo(tmp_path)
    monkeypatch.setattr(builtins, "__import__", without)
    report = write_report(tmp_path)

    assert report.png is None
    assert "install it with: pip install 'danaus[train]'" in report.lacks
    assert "<img" not in report.html.read_text()


def test_many_faults_and_replicas_still_make_a_picture(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path, num_replicas=26, num_steps=400)
    for number in range(26):
        story.run(2)
        story.kill(f"replica-{number}", away_steps=1)
    png = picture.draw(read_run(tmp_path))

    assert _size(png)[1] < 375


def test_rates_count_committed_steps_only(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path, num_replicas=2)
    story.run(11)
    record = read_run(tmp_path)

    assert tokens_per_s(record) == pytest.approx(2048 / 0.2, rel=1e-3)
    assert goodput(record) == pytest.approx(1.0, abs=1e-3)
    story.hang("replica-1", limit_s=2.0)
    assert goodput(read_run(tmp_path)) == pytest.approx(0.6, abs=0.2)


def test_the_table_of_faults_fits_a_terminal(tmp_path: Path) -> None:
    tell_demo(tmp_path)
    out = io.StringIO()
    Console(file=out, width=80).print(fault_table(faults(read_run(tmp_path))))

    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("replica-1: worker killed" in line and " 4 ms" in line for line in lines)


def test_a_journal_line_in_words() -> None:
    facts = {"at": 1.0, "event": "healed", "donors": ["a", "b"], "text": "x" * 200, "none": None}
    words = describe(Happening(1.0, "healed", facts))

    assert words == f"healed  donors=a, b  text={'x' * 77}..."


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.10 s"),
        (9.5, "9.50 s"),
        (61, "61.0 s"),
    ],
)
def test_durations_for_a_person(value: float | None, words: str) -> None:
    assert seconds(value) == words


def test_marks_are_spread_within_bounds() -> None:
    bounds = {"least": 1.0, "low": 0.0, "high": 10.0}

    assert spread([], **bounds) == []
    assert spread([2, 2, 2], **bounds) == [2, 3, 4]
    assert spread([9, 9.5, 10], **bounds) == [8, 9, 10]
    assert spread([1, 5], **bounds) == [1, 5]
