"""What is told of a repair: while the run goes on, in a fault's story and in the report (H-3)."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from danaus.app.narrator import Narrator
from danaus.app.progress import Progress
from danaus.app.report import write_report
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import read_run
from danaus.app.timeline import faults
from danaus.testing.run_folders import StoryTeller

OF = {"replica": "replica-1", "incarnation": 1}


@pytest.fixture
def story(tmp_path: Path) -> StoryTeller:
    """Return a run in which rank 1 of a replica of two ranks has died and was replaced."""
    story = StoryTeller(tmp_path)
    story.run(3)
    exited = {"signal": "SIGKILL", "kind": "signal", "reason": "ended by SIGKILL"}
    story.record("process_exited", replica="replica-1", rank=1, incarnation=0, **exited)
    new = "host1/rank1-of-replica-1/0#1"
    story.record("process_started", **OF, rank=1, pid=5023, process_id=new)
    story.record("rank_repaired", **OF, rank=1, pid=5023, kept=[4101], duration_s=0.84)
    story.record("rank_healed", **OF, rank=1, what="state", step=9, steps=0, bytes=4_500_000)
    story.record("rank_healed", **OF, rank=0, what="gradients", step=9, steps=6, bytes=900_000)
    story.record("caught_up", **OF, step=9, steps=6, bytes=900_000, duration_s=0.1, donors=[])
    return story


def test_a_person_is_told_which_rank_is_new_and_that_the_other_lives_on(story: StoryTeller) -> None:
    out = io.StringIO()
    progress = Progress(100, 3, console=Console(file=out, width=200))
    Narrator(RunFolder(story.path), tuple(story.names), progress).poll()
    told = out.getvalue()
    assert "replica-1 has a new rank 1 after 0.8 s; what is left of it has kept process" in told
    assert "replica-1 rank 1 learned step 9: 4.5 MB" in told
    assert "caught up to step 9 by the gradients of its peers: 6 steps" in told


def test_a_fault_is_followed_through_the_repair(story: StoryTeller) -> None:
    (fault,) = faults(read_run(story.path))
    assert [words for _, words in fault.moments] == [
        "its exit is known (SIGKILL)",
        "it is started again (pid 5023)",
        "its rank 1 is replaced, what is left of it has kept its state",
        "its rank 1 has learned step 9 (4.5 MB)",
        "its rank 0 has taken the gradients of 6 steps (0.9 MB)",
        "it has applied what the others took meanwhile, up to step 9",
    ]


def test_a_report_counts_replaced_ranks_apart_from_starts(story: StoryTeller) -> None:
    html = write_report(story.path).html.read_text()
    (row,) = [line for line in html.split("<tr") if "5.4 MB" in line]
    assert re.findall(r"<td[^>]*>([^<]*)", row)[:3] == ["replica-1", "1", "1"]
