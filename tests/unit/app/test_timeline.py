"""From a run's files to the story of each fault."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec
import pytest

from danaus.app.events import SERVICE, FaultKind
from danaus.app.lanes import lanes, service_lane
from danaus.app.run_record import RunRecord, read_run
from danaus.app.timeline import Fault, faults, usual_gap_s
from danaus.ft.ledger import RolledBack
from danaus.testing.run_folders import StoryTeller, tell_demo


@pytest.fixture
def demo(tmp_path: Path) -> RunRecord:
    tell_demo(tmp_path / "run")
    return read_run(tmp_path / "run")


def _by_kind(record: RunRecord) -> dict[FaultKind, Fault]:
    return {f.kind: f for f in faults(record)}


def test_every_fault_is_found_in_order(demo: RunRecord) -> None:
    found = faults(demo)

    assert [f.number for f in found] == [1, 2, 3, 4]
    assert [(f.kind, f.target) for f in found] == [
        (FaultKind.KILL, "replica-1"),
        (FaultKind.HANG, "replica-2"),
        (FaultKind.KILL_COORDINATOR, SERVICE),
        (FaultKind.OUTSIDE, "replica-0"),
    ]
    assert found[0].step == 22


def test_a_kill_is_followed_to_full_strength(demo: RunRecord) -> None:
    fault = _by_kind(demo)[FaultKind.KILL]

    assert fault.noticed_after_s == pytest.approx(0.004, abs=1e-5)
    # One step of two replicas (0.3 s) after 0.064 s of finding out; the usual step takes 0.2 s.
    assert fault.stalled_s == pytest.approx(0.064 + 0.3 - 0.2, abs=1e-5)
    # 6 steps of two replicas, then 0.05 s of learning and a step of three.
    assert fault.back_after_s == pytest.approx(0.064 + 6 * 0.3 + 0.05 + 0.2, abs=1e-5)
    words = [text for _, text in fault.moments]
    assert words == [
        "its exit is known (SIGKILL)",
        "the others are a quorum without it",
        "it is started again (pid 5023)",
        "it learns step 28",
        "it has learned step 28 from replica-0, replica-2 (4.5 MB)",
        "it is a member again",
        "first step with every replica again",
    ]


def test_a_hang_is_noticed_within_its_limit(demo: RunRecord) -> None:
    fault = _by_kind(demo)[FaultKind.HANG]

    assert fault.noticed_after_s == pytest.approx(3.0, abs=1e-5)
    assert fault.stalled_s == pytest.approx(3.0 + 0.05 + 0.06 + 0.3 - 0.2, abs=1e-5)


def test_a_dead_service_stalls_nobody(demo: RunRecord) -> None:
    fault = _by_kind(demo)[FaultKind.KILL_COORDINATOR]

    assert fault.stalled_s == pytest.approx(0.003, abs=1e-5)
    assert fault.back_after_s == pytest.approx(0.003 + 4 * 0.2, abs=1e-5)


def test_a_death_from_outside_is_a_fault_too(demo: RunRecord) -> None:
    fault = _by_kind(demo)[FaultKind.OUTSIDE]

    assert fault.title == "replica-0: killed from outside (SIGKILL)"
    assert fault.noticed_after_s is None
    assert fault.back_after_s is not None


def test_lanes_tell_each_replicas_states(demo: RunRecord) -> None:
    states = {name: [s.state for s in spans] for name, spans in lanes(demo).items()}

    again = ["member", "down", "starting", "learning", "member"]
    assert states["replica-1"] == ["starting", *again]
    assert states["replica-2"] == ["starting", "member", "hung", *again[1:]]
    for spans in lanes(demo).values():
        assert all(a.end == b.start for a, b in itertools.pairwise(spans))
    assert [s.state for s in service_lane(demo)] == ["member", "down", "member"]


def test_whoever_is_let_go_in_time_hangs_no_longer(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    story.record("fault_injected", fault="h", kind="hang", target="replica-1", incarnation=0)
    story.run(5)
    story.record("fault_lifted", fault="h", kind="hang", target="replica-1", reason="")
    story.run(10)

    states = [span.state for span in lanes(read_run(tmp_path))["replica-1"]]
    assert states == ["starting", "member", "hung", "member"]


def test_between_the_parts_of_a_run_nobody_is_there(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    ended = story.now
    story.now += 7.0  # killed with its controller: nothing is written down
    story.record("run_started", resume=True, replicas=list(story.names))
    story.record("service_started", pid=4002)
    story.now += 1.0
    story.announce()
    story.run(2)
    record = read_run(tmp_path)

    for spans in (*lanes(record).values(), service_lane(record)):
        (away,) = [span for span in spans if span.state == "down"]
        assert (away.start, away.end) == pytest.approx((ended, ended + 7.0))


def test_without_a_journal_lanes_are_guessed_from_the_ledgers(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(20)
    story.kill("replica-1", away_steps=30)
    story.run(20)
    (tmp_path / "journal.jsonl").unlink()
    record = read_run(tmp_path)

    states = {name: [s.state for s in spans] for name, spans in lanes(record).items()}
    assert states["replica-0"] == ["member"]
    assert states["replica-1"] == ["member", "down", "member"]
    assert faults(record) == ()


def test_a_fault_that_nothing_followed_has_no_durations(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    story.record("fault_injected", fault="k", kind="kill", target="replica-1", incarnation=0)
    (fault,) = faults(read_run(tmp_path))

    assert (fault.noticed_after_s, fault.stalled_s, fault.back_after_s) == (None, None, None)
    assert fault.moments == ()


def test_words_of_a_later_version_do_no_harm(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.record("meteor_struck", size_m=3)
    story.record("fault_injected", kind="meteor", target="replica-0")
    story.run(10)
    (fault,) = faults(read_run(tmp_path))

    assert fault.kind == FaultKind.OUTSIDE


def test_two_ranks_that_die_together_are_one_fault(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    facts = {"replica": "replica-1", "incarnation": 0, "signal": "SIGKILL", "expected": False}
    story.record("process_exited", rank=0, **facts)
    story.now += 0.01
    story.record("process_exited", rank=1, **facts)
    story.run(3)

    (fault,) = faults(read_run(tmp_path))
    assert [words for _, words in fault.moments] == ["its exit is known (SIGKILL)"]


def test_a_flipped_bit_is_followed_to_its_healing(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    story.record("fault_injected", fault="f", kind="flip_bit", target="replica-2", incarnation=0)
    story.now += 0.15
    story.record("step_discarded", replica="replica-0", incarnation=0, step=11, reason="veto")
    story.now += 0.05
    story.record("divergence_found", step=10, minority=["replica-2/0#0"], reason="1 of 3 differs")
    story.now += 0.1
    story.record("healed", member="replica-2/0#0", step=10, bytes=1, donors=["replica-0/0#0"])
    story.run(2)
    (fault,) = faults(read_run(tmp_path))

    assert fault.title == "replica-2: one bit of the parameters flipped"
    assert fault.noticed_after_s == pytest.approx(0.15, abs=1e-5)
    assert fault.back_after_s == pytest.approx(0.3 + 0.2, abs=1e-5)
    assert [words for _, words in fault.moments] == [
        "step 11 is discarded at the vote",
        "fingerprints differ: 1 of 3 differs",
        "it has learned step 10 from replica-0 (0.0 MB)",
        "first step with every replica again",
    ]


def test_files_that_end_anywhere_are_read(tmp_path: Path) -> None:
    tell_demo(tmp_path)
    whole = {p: p.read_bytes() for p in [tmp_path / "journal.jsonl", *tmp_path.glob("ledger/*")]}
    for part in (0.0, 0.13, 0.5, 0.77, 0.999):
        for path, raw in whole.items():
            path.write_bytes(raw[: int(len(raw) * part)])
        record = read_run(tmp_path)
        faults(record), lanes(record)
        assert record.notes == ()


def test_a_rollback_leaves_the_newer_terms_steps(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "replica-0-0.jsonl"
    StoryTeller(tmp_path, num_replicas=1).run(3)
    *_, second, _third = path.read_bytes().splitlines()
    newer = re.sub(rb'"loss":[0-9.]+', b'"loss":99', second.replace(b"[1,1]", b"[2,0]"))
    back = msgspec.json.encode(RolledBack(at=0.0, step=1, term=2))
    with path.open("ab") as file:
        file.write(b"\n".join((b"not json", back, newer, b"")))
    record = read_run(tmp_path)

    assert list(record.losses) == [1, 2]
    assert record.losses[2] == 99
    assert len(record.commits) == 4
    assert record.notes == ("replica-0-0.jsonl: 1 damaged lines were left out",)


def test_a_ledger_of_two_writers_is_left_out_with_a_note(tmp_path: Path) -> None:
    StoryTeller(tmp_path).run(3)
    ledger = tmp_path / "ledger"
    lines = (ledger / "replica-1-0.jsonl").read_text()
    with (ledger / "replica-0-0.jsonl").open("a") as file:
        file.write(lines)
    record = read_run(tmp_path)

    assert {c.replica for c in record.commits} == {"replica-1", "replica-2"}
    assert "a ledger has one writer" in record.notes[0]


def test_no_commit_no_usual_gap() -> None:
    assert usual_gap_s([]) == 0.0


def test_what_befalls_a_victim_again_is_not_put_down_to_the_older_fault(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    story.record("fault_injected", fault="s", kind="slow", target="replica-1", incarnation=0)
    story.run(10)
    story.kill("replica-1")
    story.run(5)
    slow, kill = faults(read_run(tmp_path))

    assert slow.noticed_after_s is None
    assert kill.noticed_after_s == pytest.approx(0.004, abs=1e-5)


def test_what_was_written_down_and_then_found_nobody_is_no_fault(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    for name in ("a", "b"):
        story.record("fault_injected", fault=name, kind="kill", target="replica-1")
    story.record("fault_missed", fault="a", kind="kill", target="replica-1", reason="it was gone")
    story.run(5)

    assert len(faults(read_run(tmp_path))) == 1


def test_the_absence_of_another_victim_is_no_stall_of_the_survivors(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    del story.alive["replica-1"]
    story.announce()
    story.run(10)
    story.record("fault_injected", fault="c", kind="kill_coordinator", target=SERVICE)
    story.record("service_exited", pid=1, signal="SIGKILL", expected=False)
    story.run(20)
    story.alive["replica-1"] = 1
    story.announce()
    story.run(10)
    (fault,) = faults(read_run(tmp_path))

    assert fault.stalled_s == pytest.approx(0.0, abs=0.15)


def test_a_killed_controller_is_back_when_all_take_part_again(tmp_path: Path) -> None:
    story = StoryTeller(tmp_path)
    story.run(10)
    story.record("fault_injected", fault="k", kind="kill_controller", target="controller")
    story.now += 2.0
    story.record("run_started", resume=True, replicas=story.names)
    story.now += 1.0
    story.run(3)
    (fault,) = faults(read_run(tmp_path))

    assert fault.noticed_after_s == pytest.approx(2.0, abs=1e-5)
    assert fault.back_after_s == pytest.approx(3.2, abs=1e-5)
