"""What a person is told while a run goes on."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from danaus.app.narrator import Narrator
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder
from danaus.testing.run_folders import StoryTeller

A, B, C = "replica-0/0#0", "replica-1/0#0", "replica-2/0#0"


@pytest.fixture
def story(tmp_path: Path) -> StoryTeller:
    return StoryTeller(tmp_path)


@pytest.fixture
def tell(story: StoryTeller):
    """Return what is told of what was recorded since, without its stamps."""
    out = io.StringIO()
    progress = Progress(100, 3, console=Console(file=out, width=200))
    folder = RunFolder(story.path)
    narrator = Narrator(folder, tuple(story.names), progress)
    narrator.poll()

    def told() -> list[str]:
        out.seek(0)
        out.truncate()
        narrator.poll()
        return [re.sub(r"^ *[0-9.]+ s  ", "", line) for line in out.getvalue().splitlines()]

    return told


def test_a_start_is_told(story: StoryTeller) -> None:
    out = io.StringIO()
    progress = Progress(100, 3, console=Console(file=out, width=200))
    Narrator(RunFolder(story.path), tuple(story.names), progress).poll()

    assert "replica-0 started: pid 4100" in out.getvalue()
    assert "replica-0, replica-1 and replica-2 train (quorum 1.1)" in out.getvalue()


def test_what_was_written_before_a_resume_is_not_told_of_any_replica(story: StoryTeller) -> None:
    out = io.StringIO()
    progress = Progress(100, 3, console=Console(file=out, width=200))
    folder = RunFolder(story.path)
    line = {"step": 30, "loss": 1.0, "mono": 1.0, "num_tokens": 9, "num_replicas": 3}
    folder.metrics_path("replica-2").write_text(json.dumps(line) + "\n")
    narrator = Narrator(folder, ("replica-0",), progress, skip_past=True)
    story.record("process_started", replica="replica-2", incarnation=1, pid=4711, rank=0)
    narrator.poll()

    assert "replica-2 started again: pid 4711" in out.getvalue()
    assert narrator.step == 0, "replica-2 has taken no step since"


def test_a_death_from_outside_is_told_apart(story: StoryTeller, tell) -> None:
    death = {"replica": "replica-1", "rank": 0, "incarnation": 0, "signal": "SIGKILL"}
    story.record(
        "fault_injected", kind="kill", target="replica-1", incarnation=0, text="kill -9 it"
    )
    story.record("process_exited", **death, expected=False, reason="out of memory, most")
    story.record("process_exited", **{**death, "incarnation": 1}, expected=False)
    story.record("process_exited", **{**death, "incarnation": 2, "rank": 1}, expected=True)

    story.record("process_exited", **{**death, "incarnation": 3}, reason="out of memory, most")
    silent = "silent for 5.0 s (its process was ended by SIGKILL)"
    story.record("process_exited", **{**death, "incarnation": 4}, reason=silent)

    assert tell() == [
        "FAULT kill -9 it",
        "replica-1 is dead (SIGKILL)",
        "replica-1 is dead (SIGKILL): a fault from outside",
        "replica-1 is dead (SIGKILL): most likely out of memory",
        "replica-1 is dead (SIGKILL, silent for 5.0 s)",
    ]


def test_one_that_never_came_up_is_told_of_without_an_exit_code(story: StoryTeller, tell) -> None:
    facts = {"replica": "replica-1", "rank": 0, "incarnation": 0, "signal": None, "kind": "exit"}
    story.record("process_exited", **facts, exit_code=None, reason="did not come up within 60 s")
    story.record("process_exited", **{**facts, "incarnation": 1}, exit_code=0, reason="it ended")
    assert tell() == [
        "replica-1 is dead (did not come up within 60 s)",
        "replica-1 is dead (exit code 0)",
    ]


def test_who_goes_on_and_who_is_back_is_told_once(story: StoryTeller, tell) -> None:
    facts = {"learners": [], "committed_step": 7, "hold": False}
    story.record("quorum_announced", epoch="1.2", members=[A, C], **facts)
    story.record("quorum_announced", epoch="1.3", members=[A, C], **facts)
    back = [A, "replica-1/0#1", C]
    story.record("quorum_announced", epoch="1.4", members=back, **facts)
    story.record("quorum_announced", epoch="1.5", members=back, **facts, finished=True)

    assert tell() == [
        "replica-0 and replica-2 go on without replica-1 (quorum 1.2)",
        "replica-1 takes part again after step 7 (quorum 1.4)",
    ]


def test_one_that_learns_while_the_others_go_on_is_told_with_how_long_they_waited(
    story: StoryTeller, tell
) -> None:
    back = "replica-1/0#1"
    facts = {"members": [A, C], "learners": [], "committed_step": 7, "hold": False}
    story.record("quorum_announced", epoch="1.2", **facts)
    story.record("quorum_announced", epoch="1.3", **{**facts, "learners": [back]})
    who = {"replica": "replica-1", "incarnation": 1, "donors": [A, C]}
    story.record("learning_started", **who, step=7, trails=True)
    story.record("healed", **who, step=7, bytes=2_000_000, duration_s=0.5)
    story.record("caught_up", **who, step=11, steps=4, bytes=1, duration_s=0.6)
    story.record("quorum_announced", epoch="1.4", **{**facts, "learners": [back], "hold": True})
    story.record("learning_started", **who, step=12, trails=False)
    story.record("caught_up", **who, step=12, steps=1, bytes=1, duration_s=0.1)
    story.record("quorum_announced", epoch="1.5", **{**facts, "members": [A, back, C]})

    *told, last = tell()
    assert told == [
        "replica-0 and replica-2 go on without replica-1 (quorum 1.2)",
        "replica-1 learns step 7 while the others go on",
        "replica-1 learned step 7 from replica-0 and replica-2: 2.0 MB in 500 ms",
        "replica-1 caught up to step 11 by the gradients of replica-0 and replica-2: 4 steps",
        "replica-1 caught up to step 12 by the gradients of replica-0 and replica-2: 1 step",
    ]
    assert "part again after step 7 (quorum 1.5); the others waited" in last


def test_all_that_go_back_are_told_in_one_line(story: StoryTeller, tell) -> None:
    for name in story.names:
        story.record("run_resumed", replica=name, step=40, term=2)
    for name in story.names:
        story.record("run_resumed", replica=name, step=0, term=3)

    assert tell() == [
        "all go on from the checkpoint of step 40",
        "all go on from the seed's weights",
    ]


def test_what_is_refused_is_told_once_with_its_reason(story: StoryTeller, tell) -> None:
    for name in story.names:
        story.record("step_refused", replica=name, step=6, reason="replica-1 has no numbers")
    story.record("checkpoint_refused", replica="replica-0", step=8, reason="it is damaged")
    story.record("donor_failed", replica="replica-1", step=9, donor=C, reason="damaged message")

    assert tell() == [
        "step 6 is tried again: replica-1 has no numbers",
        "replica-0 cannot go on from it: it is damaged",
        f"replica-1 asks for step 9 again, {C} failed it: damaged message",
    ]


def test_a_divergence_says_whether_it_heals(story: StoryTeller, tell) -> None:
    facts = {"step": 7, "fingerprints": {}}
    reason = "fingerprints of step 7 differ: "
    story.record(
        "divergence_found", **facts, minority=["replica-2"], reason=f"{reason}replica-2 heals"
    )
    story.record("divergence_found", **facts, minority=[], reason=f"{reason}without a majority")

    assert tell() == [
        "the vote finds other bits after step 7, in replica-2: replica-2 heals",
        "the vote finds other bits after step 7: without a majority",
    ]


def test_a_full_disk_is_told_once_and_that_it_has_room_again(tell, monkeypatch) -> None:
    real = os.statvfs

    def full(path: object) -> os.statvfs_result:
        room = list(real(path))
        room[4] = 0  # f_bavail
        return os.statvfs_result(room)

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", full)
        (line,) = tell()
        assert "is full: training goes on" in line
        assert tell() == []
    (line,) = tell()
    assert "has room again" in line
