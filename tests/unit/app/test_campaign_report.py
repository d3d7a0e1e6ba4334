"""The verdict on a campaign, and the section of a page that tells of it."""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console

from danaus.app.campaign_figures import FaultFigure
from danaus.app.campaign_report import Judged, tell, write_section
from danaus.app.campaign_run import Course
from danaus.app.campaign_watch import usage


def test_a_section_is_written_anew_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nWords.\n\n## Campaigns\n\nold\n\n## Other\n\nmore\n")
    write_section(page, "Campaigns", "new\n")

    assert page.read_text() == "# Page\n\nWords.\n\n## Campaigns\n\nnew\n\n## Other\n\nmore\n"


def test_a_page_that_is_not_there_begins_with_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_section(page, "Campaigns", "new")
    write_section(page, "Campaigns", "newer")

    assert page.read_text() == "## Campaigns\n\nnewer\n"


def test_what_a_process_uses_is_read_and_nothing_of_one_that_is_gone() -> None:
    used = usage(os.getpid())

    assert used is not None
    assert used.rss_bytes > 1 << 20
    assert used.num_files > 2
    assert used.num_threads >= 1
    assert usage(2**22 + 1) is None


def test_a_console_of_any_width_shows_each_column_by_its_whole_name(tmp_path: Path) -> None:
    figure = FaultFigure("kill at reduce", "replica-1", 7, 0.02, 0.1, 0.5, 1, 0, ("dead",), ())
    judged = Judged(True, "SAME BITS", (), (figure,), Course(num_struck=1), 20)
    output = io.StringIO()
    assert tell(judged, {}, out=tmp_path / "o.json", console=Console(file=output, width=80)) == 0
    for name in ("noticed after", "stalled for", "right one blamed", "wrong one"):
        assert name in output.getvalue()
