"""Whether all are back, as a run's metrics tell."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from danaus.app.chaos_view import RunView, started_at
from danaus.app.run_folder import RunFolder

NAMES = ("replica-0", "replica-1")


class Story:
    """Metrics that grow as a run's do."""

    def __init__(self, path: Path) -> None:
        (path / "metrics").mkdir()
        self.folder = RunFolder(path)
        self.view = RunView(self.folder, NAMES)

    def step(self, step: int, *names: str, at: float | None = None) -> None:
        for name in names:
            line = {"step": step, "num_replicas": len(names), "at": at or time.time() + 1}
            with self.folder.metrics_path(name).open("a") as file:
                file.write(json.dumps(line) + "\n")
        self.view.look()


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_nothing_is_known_before_the_first_step(story):
    story.view.look()
    assert (story.view.has_begun, story.view.step, story.view.all_members) == (False, 0, False)
    story.step(1, *NAMES)
    assert (story.view.has_begun, story.view.step, story.view.all_members) == (True, 1, True)


def test_a_replica_that_was_left_behind_is_no_member(story):
    story.step(1, *NAMES)
    story.step(2, "replica-0")
    assert not story.view.all_members
    story.step(3, *NAMES)
    assert story.view.all_members


def test_after_a_fault_all_are_back_once_each_has_committed_some_steps(story):
    story.step(5, *NAMES)
    story.view.mark()
    assert not story.view.all_members, "what was written before says nothing"
    story.step(6, *NAMES)
    story.step(7, *NAMES)
    assert not story.view.all_members, "one may have been under way"
    story.step(8, *NAMES)
    assert story.view.all_members


def test_who_was_drained_is_not_waited_for_and_who_was_added_is(story):
    story.step(1, *NAMES)
    story.view.follow(["replica-0"])
    story.step(2, "replica-0")
    assert story.view.all_members

    story.view.follow(["replica-0", "replica-2"])
    assert not story.view.all_members
    story.step(3, "replica-0", "replica-2")
    assert story.view.all_members


def test_a_step_falls_where_the_run_goes_back_to_a_checkpoint(story):
    now = time.time()
    story.step(9, *NAMES, at=now + 1)
    story.step(5, *NAMES, at=now + 2)
    assert story.view.step == 5


def test_what_was_written_before_a_run_went_on_tells_nothing(story):
    story.step(9, *NAMES, at=100.0)
    later = RunView(story.folder, NAMES, since=200.0)
    later.look()
    assert not later.has_begun
    story.step(10, *NAMES, at=300.0)
    later.look()
    assert later.step == 10


def test_a_run_began_when_it_was_resumed_last(story):
    assert started_at(story.folder) == 0.0
    lines = [
        {"event": "run_started", "at": 5.0, "mono": 1.0, "resume": False},
        {"event": "run_started", "at": 9.0, "mono": 2.0, "resume": True},
        {"event": "run_stopped", "at": 11.0, "mono": 3.0},
    ]
    story.folder.journal_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert started_at(story.folder) == 9.0
