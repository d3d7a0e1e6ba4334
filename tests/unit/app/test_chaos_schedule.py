"""When faults are due, whom they hit, and that a record makes the same campaign again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.app.chaos import FaultPlan, Fleet
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_record import fault_line, missed_line, plan_line, replay
from danaus.app.chaos_schedule import Schedule, Seen
from danaus.app.chaos_spec import write
from danaus.app.events import FaultKind
from danaus.core.errors import ConfigError

FLEET = Fleet.of(range(4), num_ranks=2)


def schedule(*specs: str, seed: int = 0) -> Schedule:
    return Schedule(FaultPlan.parse(*specs, seed=seed), FLEET)


def struck_at(made: Schedule, looks: list[Seen]) -> list[Seen]:
    return [look for look in looks if made.handle(look)]


def by_steps(num: int) -> list[Seen]:
    """A run with a step each tenth of a second."""
    return [Seen(step, step / 10) for step in range(num)]


@pytest.mark.parametrize(
    ("spec", "steps"),
    [
        ("kill", [0]),
        ("kill:at_step=7", [7]),
        ("kill:after=1s", [10]),
        ("kill:after=4steps", [4]),
        ("kill:every=1s", [10, 20, 30]),
        ("kill:every=12steps", [12, 24, 36]),
        ("kill:every=1s,times=2", [10, 20]),
        ("kill:at_step=15,every=1s", [15, 25, 35]),
        ("kill:at_step=15,every=10steps", [15, 25, 35]),
        ("kill:after=2s,every=10steps,times=2", [20, 30]),
    ],
)
def test_a_fault_is_due_when_its_spec_says(spec, steps):
    made = schedule(spec)
    assert [look.step for look in struck_at(made, by_steps(40))] == steps
    assert made.is_over == ("every" not in spec or "times" in spec)


def test_what_was_missed_comes_once_and_the_rhythm_stays():
    made = schedule("kill:every=10steps")
    looks = [Seen(0, 0.0), Seen(34, 1.0), Seen(35, 1.1), Seen(40, 1.2)]
    assert [look.step for look in struck_at(made, looks)] == [34, 40]
    made = schedule("kill:every=1s")
    looks = [Seen(0, 0.0), Seen(1, 3.4), Seen(2, 3.9), Seen(3, 4.0)]
    assert [look.step for look in struck_at(made, looks)] == [1, 3]


def test_steps_count_from_where_the_plan_began():
    looks = [Seen(100 + n, n / 10) for n in range(30)]
    assert [each.step for each in struck_at(schedule("kill:after=5steps"), looks)] == [105]
    assert [each.step for each in struck_at(schedule("kill:every=10steps"), looks)] == [110, 120]
    assert [each.step for each in struck_at(schedule("kill:at_step=5"), looks)] == [100]


def test_a_guarded_fault_waits_until_all_are_back():
    made = schedule("kill:at_step=5,all_back=true", "kill_coordinator:at_step=6,all_back=true")
    assert made.handle(Seen(5, 0.5, all_back=False)) == ()
    (first,) = made.handle(Seen(9, 0.9, all_back=True))
    assert first.kind is FaultKind.KILL, "one at a time, as the first is not back yet"
    (second,) = made.handle(Seen(9, 1.0, all_back=True))
    assert second.kind is FaultKind.KILL_COORDINATOR
    assert made.is_over


def test_faults_without_a_guard_strike_together_in_the_order_of_the_plan():
    due = schedule("kill_coordinator:at_step=3", "kill:at_step=3,replica=0").handle(Seen(3, 0.0))
    assert [each.kind for each in due] == [FaultKind.KILL_COORDINATOR, FaultKind.KILL]
    assert [each.id for each in due] == ["chaos-1.1", "chaos-2.1"]


def test_a_resolved_fault_leaves_nothing_open():
    (kill,) = schedule("kill:after=0s").handle(Seen(3, 1.0))
    assert kill.replica in range(4)
    assert kill.rank in (0, 1)
    assert (kill.at_step, kill.after_s, kill.host) == (3, None, None)
    (slow,) = schedule("slow:process=nursery").handle(Seen(3, 1.0))
    assert (slow.amount, slow.for_s, slow.process) == (3.0, 5.0, "nursery")
    assert slow.host in range(4)
    assert slow.replica is None
    (cut,) = schedule("partition:peer=1").handle(Seen(3, 1.0))
    assert cut.host in (0, 2, 3)
    (flip,) = schedule("flip_bit").handle(Seen(0, 0.0))
    assert flip.where == "parameters"


def test_a_worker_may_be_named_by_its_host():
    made = Schedule(FaultPlan.parse("kill:host=1,every=1steps"), Fleet((0, 1, 1)))
    hit = {fault.replica for n in range(30) for fault in made.handle(Seen(n, 0.0))}
    assert hit == {1, 2}


def test_whom_the_seed_chooses_is_one_that_is_there_after_a_drain():
    made = Schedule(FaultPlan.parse("kill:every=1steps"), Fleet.of((0, 2, 4)))
    hit = {fault.replica for n in range(60) for fault in made.handle(Seen(n, 0.0))}
    assert hit == {0, 2, 4}


def test_every_target_is_hit_some_time():
    made = schedule("kill:every=1steps", seed=5)
    hit = {(f.replica, f.rank) for n in range(100) for f in made.handle(Seen(n, 0.0))}
    assert hit == {(replica, rank) for replica in range(4) for rank in range(2)}


@given(st.integers(0, 2**64), st.lists(st.booleans(), max_size=40))
def test_the_seed_alone_chooses_whom(seed, looks):
    """However often one looks, the n-th strike hits the same."""
    often, seldom = (schedule("kill:every=3steps", seed=seed) for _ in range(2))
    hit_often = [f.replica for n in range(len(looks)) for f in often.handle(Seen(n, 0.0))]
    hit_seldom = [
        f.replica for n, look in enumerate(looks) if look for f in seldom.handle(Seen(n, 0.0))
    ]
    assert hit_seldom == hit_often[: len(hit_seldom)]


def test_two_seeds_choose_differently():
    def hits(seed: int) -> list[int | None]:
        made = schedule("kill:every=1steps", seed=seed)
        return [f.replica for n in range(20) for f in made.handle(Seen(n, 0.0))]

    assert hits(1) != hits(2)


def test_a_victim_is_told_beforehand_of_what_it_does_to_itself():
    made = schedule("nan:at_step=30", "nan:every=5s", "hang:at_step=4,at_phase=vote,replica=2")
    assert [(each.at_step, each.by) for each in made.planned] == [(30, "inside"), (4, "inside")]
    assert made.planned[1].replica == 2
    assert not made.is_over, "one comes again and again"
    assert not struck_at(made, by_steps(45))


def test_targets_are_checked_before_anything_starts():
    with pytest.raises(ConfigError, match="no replica 9"):
        schedule("kill:replica=9")


# -- record and replay ---------------------------------------------------------------------------


def campaign(made: Schedule, looks: list[Seen]) -> list[Fault]:
    return [*made.planned, *(fault for look in looks for fault in made.handle(look))]


SPECS = st.sampled_from(
    [
        "kill:every=2steps", "kill:every=1s", "hang:at_step=3", "kill_coordinator:after=2s",
        "slow:every=5steps,all_back=true", "nan:at_step=6", "partition:every=3steps,times=2",
        "kill:at_phase=vote,every=4steps",
    ]
)  # fmt: skip


@given(st.lists(SPECS, max_size=4), st.integers(0, 9), st.lists(st.booleans(), max_size=30))
def test_a_replay_strikes_the_same_in_the_same_steps(specs, seed, back):
    made = FaultPlan.parse(*specs, seed=seed)
    looks = [Seen(n, n / 4, all_back=each) for n, each in enumerate(back)]
    first = campaign(Schedule(made, FLEET), looks)
    lines = [plan_line(made, FLEET), *(fault_line(each, 0.5) for each in first)]
    again = replay(lines)
    assert again.seed == seed
    planned = [fault for fault in again.faults if fault.is_planned]
    told = Schedule(again, FLEET)
    assert list(told.planned) == planned
    # Looked at in each step, but at other times and with nobody back.
    looks = [Seen(n, 0.0, all_back=False) for n in range(len(back))]
    second = campaign(told, looks)
    assert sorted(map(write, second)) == sorted(map(write, first))


def test_what_missed_is_not_replayed_and_a_torn_line_is_left_out():
    one, two = schedule("kill", "hang").handle(Seen(4, 0.0))
    lines = [
        plan_line(FaultPlan(), FLEET), fault_line(one, 0.0), missed_line(one, "it was gone"),
        fault_line(two, 0.1), '{"fault":"chaos-3', "",
    ]  # fmt: skip
    assert replay(lines).faults == (two,)


def test_a_record_that_is_damaged_amid_its_lines_is_refused():
    (kill,) = schedule("kill").handle(Seen(4, 0.0))
    head, line = plan_line(FaultPlan(), FLEET), fault_line(kill, 0.0)
    for damaged in (line[:20], '{"fault":"chaos-1.1"}', '{"spec":"kill"}', "[]"):
        with pytest.raises(ConfigError, match="line 3 of the record is damaged"):
            replay([head, line, damaged, line])


@pytest.mark.parametrize(
    "lines", [[], ["nonsense"], ['{"event":"run_started"}'], ["[1]"], ['{"record":1}']]
)
def test_what_is_no_record_is_refused(lines):
    with pytest.raises(ConfigError, match="not a record of faults"):
        replay(lines)
