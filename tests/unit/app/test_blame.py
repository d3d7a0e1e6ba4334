"""Who is blamed: each accusation is put down to the fault that can have caused it, or is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.app.blame import accusations, blames
from danaus.app.campaign_figures import by_kind, figures_of, label
from danaus.app.chaos_spec import read
from danaus.app.events import SERVICE
from danaus.app.run_record import read_run
from danaus.app.timeline import faults
from danaus.testing.run_folders import StoryTeller

LONG_AGO_S = 90.0


@pytest.fixture
def story(tmp_path: Path) -> StoryTeller:
    told = StoryTeller(tmp_path)
    told.run(10)
    return told


def strike(story: StoryTeller, kind: str, target: str, **facts: object) -> None:
    story.record("fault_injected", fault="f", kind=kind, target=target, spec=kind, **facts)
    story.now += 0.01


def died(story: StoryTeller, replica: str, incarnation: int = 0) -> None:
    facts = {"signal": "SIGKILL", "expected": False, "rank": 0}
    story.record("process_exited", replica=replica, incarnation=incarnation, **facts)
    story.now += 0.01


def blamed(story: StoryTeller) -> list[tuple[list[str], list[str]]]:
    """Return for each fault who was blamed rightly and who wrongly."""
    record = read_run(story.path)
    known = [f for f in faults(record) if f.kind != "outside"]
    found = blames(known, record)
    return [
        ([a.whom for a in found[f.number].right], [a.whom for a in found[f.number].wrong])
        for f in known
    ]


def test_the_one_that_was_hit_is_blamed_rightly(story: StoryTeller) -> None:
    strike(story, "kill", "replica-1", incarnation=0)
    died(story, "replica-1")

    assert blamed(story) == [(["replica-1"], [])]


def test_one_that_nothing_hit_is_blamed_wrongly(story: StoryTeller) -> None:
    strike(story, "kill", "replica-1", incarnation=0)
    died(story, "replica-1")
    died(story, "replica-2")

    assert blamed(story) == [(["replica-1"], ["replica-2"])]


def test_a_later_life_of_the_one_that_was_hit_is_another(story: StoryTeller) -> None:
    strike(story, "kill", "replica-1", incarnation=0)
    died(story, "replica-1")
    died(story, "replica-1", incarnation=1)

    assert blamed(story) == [(["replica-1"], ["replica-1"])]


def test_a_fault_is_not_to_blame_for_ever(story: StoryTeller) -> None:
    strike(story, "slow", "replica-1", incarnation=0)
    story.now += LONG_AGO_S
    died(story, "replica-1")

    assert blamed(story) == [([], ["replica-1"])]


def test_of_two_faults_that_overlap_each_has_its_own(story: StoryTeller) -> None:
    strike(story, "kill_coordinator", SERVICE)
    strike(story, "kill", "replica-0", incarnation=0)
    story.record("service_exited", pid=1, signal="SIGKILL", expected=False)
    died(story, "replica-0")

    assert blamed(story) == [([SERVICE], []), (["replica-0"], [])]


def test_a_host_is_the_replica_that_lives_there(story: StoryTeller) -> None:
    started = {"replica": "replica-1", "rank": 0, "pid": 9, "incarnation": 1}
    story.record("process_started", process_id="host1/replica-1/0#1", **started)
    strike(story, "kill_host_agent", "host1")
    story.record("host_lost", host="host1", reason="its agent ended by SIGKILL")

    assert blamed(story) == [(["replica-1"], [])]


def test_whoever_shares_the_full_disk_may_fail_for_a_while(story: StoryTeller) -> None:
    strike(story, "disk_full", "replica-1", incarnation=0)
    story.record("service_exited", pid=1, signal=None, expected=False, reason="no room")

    assert blamed(story) == [([SERVICE], [])]


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("reduced gradients differ at rank 0: ab at a/0#0, b/0#1; cd at c/0#2", ["c"]),
        ("states before the step differ at rank 0: ab at a/0#0; cd at b/0#0, c/0#0", ["a"]),
        ("states before the step differ at rank 0: ab at a/0#0; cd at b/0#0", []),
        ("lost b/0#1: damaged message: the checksum; lost a/0#0: it closed the connection", ["b"]),
        ("a/0#0 refused: its own share, leaf 1, is not finite; b/0#0 refused: not finite", ["a"]),
        ("exchange aborted: replica-1 lost rank 0: ended by SIGKILL", []),
    ],
)
def test_a_refused_step_names_whoever_is_to_blame(
    story: StoryTeller, reason: str, named: list[str]
) -> None:
    story.record("step_discarded", step=11, epoch="1.1", replica="a", reason=reason)

    assert [each.whom for each in accusations(read_run(story.path))] == named


def test_figures_tell_what_was_lost_and_take_the_worst_of_a_kind(story: StoryTeller) -> None:
    for number, away_s in enumerate((0.5, 1.5)):
        strike(story, "kill", "replica-1", incarnation=number)
        died(story, "replica-1", number)
        for replica in ("replica-0", "replica-2"):
            story.record("step_discarded", step=11, epoch=f"1.{number}", replica=replica)
        story.now += away_s
        story.run(3)
    first, second = figures_of(read_run(story.path))
    (kind,) = by_kind([first, second])

    assert (first.num_tries, second.num_tries, first.num_steps) == (1, 1, 0)
    assert first.noticed_s == pytest.approx(0.01, abs=1e-4)
    assert first.stalled_s == pytest.approx(0.52, abs=0.01)
    assert (kind.num, kind.num_tries, kind.num_right, kind.num_wrong) == (2, 2, 2, 0)
    assert kind.stalled_s == (pytest.approx(1.02, abs=0.01), pytest.approx(1.52, abs=0.01))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("kill:replica=1,rank=0,at_step=3", "kill"),
        ("kill:at_phase=vote", "kill at vote"),
        ("hang:where=stop,process=worker", "hang"),
        ("hang:where=gil,process=worker", "hang gil"),
        ("hang:process=nursery,for=1s", "hang nursery 1s"),
        ("slow:process=worker,for=2s", "slow"),
        ("slow:process=coordinator,for=2s", "slow coordinator"),
        ("flip_bit:where=sum", "flip_bit sum"),
        ("preempt:process=host_agent", "preempt"),
        ("preempt:process=worker", "preempt worker"),
    ],
)
def test_kinds_are_told_apart_by_what_matters(spec: str, words: str) -> None:
    assert label(read(spec)) == words
