"""How a run ended, and how often it began again, from its journal."""

from __future__ import annotations

from pathlib import Path

from danaus.app.run_folder import RunFolder
from danaus.app.run_record import finished_words, job_restarts, read_end, read_run
from danaus.app.run_result import RunResult
from danaus.testing.run_folders import StoryTeller


def test_a_run_without_an_end_has_none(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(3)

    assert read_end(RunFolder(tmp_path)) is None
    story.record("run_finished", step=3, sha256="ab" * 32, num_restarts=2, job_restarts=0)
    assert read_end(RunFolder(tmp_path)) == RunResult(3, "ab" * 32, (), 2)


def test_a_rollback_of_all_replicas_is_one_restart_of_the_job(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    for term, step in ((2, 40), (3, 40)):
        for name in story.names:
            story.record("run_resumed", replica=name, term=term, step=step)

    assert job_restarts(read_run(tmp_path).events) == 2


def test_the_end_is_told_with_the_right_number() -> None:
    said = [finished_words(RunResult(9, "f", (), number)) for number in (0, 1, 4)]

    assert said == [
        "finished: 9 steps, no replica was started again; final state sha256 f",
        "finished: 9 steps, a replica was once started again; final state sha256 f",
        "finished: 9 steps, 4 times a replica was started again; final state sha256 f",
    ]


def test_who_was_to_train_follows_what_the_run_was_scaled_to(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(3)
    record = read_run(tmp_path)
    assert record.wanted_at(record.end) == frozenset(record.replicas)
    story.now += 1.0
    story.record("run_started", replicas=["replica-0", "replica-1"])
    story.now += 1.0
    story.record("crew_scaled", replicas=3, was=2, start=["replica-2"], drain=[])
    story.now += 1.0
    story.record("crew_scaled", replicas=1, was=3, start=[], drain=["replica-2", "replica-1"])
    record = read_run(tmp_path)
    times = [event.time for event in record.events[-3:]]
    wanted = [sorted(record.wanted_at(time)) for time in times]
    assert wanted == [
        ["replica-0", "replica-1"],
        ["replica-0", "replica-1", "replica-2"],
        ["replica-0"],
    ]
