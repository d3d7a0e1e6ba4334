"""A campaign's plan: all kinds, each as often as its share, the same for the same seed."""

from __future__ import annotations

import pytest

from danaus.app.campaign_mix import DISK, FREEZER, MIX, NETWORK, NEVER, ROOT, campaign_plan
from danaus.app.chaos import Fleet, check
from danaus.app.chaos_kinds import FACTS
from danaus.app.chaos_spec import read
from danaus.app.events import FaultKind

EVERY = 40
OF_A_LAB = {FaultKind.PARTITION, FaultKind.LOSS, FaultKind.DELAY}


def test_the_seed_makes_the_plan() -> None:
    assert campaign_plan(60, 3, every_steps=EVERY) == campaign_plan(60, 3, every_steps=EVERY)
    assert campaign_plan(60, 3, every_steps=EVERY) != campaign_plan(60, 4, every_steps=EVERY)


@pytest.mark.parametrize("num", [1, 12, 300])
def test_it_has_as_many_faults_as_asked_for_and_a_small_run_has_their_targets(num: int) -> None:
    plan = campaign_plan(num, 0, every_steps=EVERY)

    assert len(plan.faults) == num
    check(plan, Fleet.of(range(3)))


def test_three_hundred_have_every_kind_and_without_a_network_those_that_a_machine_has() -> None:
    alone = campaign_plan(300, 0, every_steps=EVERY, lacking=frozenset((NETWORK,)))
    plan = campaign_plan(300, 0, every_steps=EVERY)

    assert {fault.kind for fault in alone.faults} == set(FACTS) - OF_A_LAB
    assert {fault.kind for fault in plan.faults} == set(FACTS)


def test_what_is_done_often_is_done_more_often() -> None:
    specs = [fault.kind for fault in campaign_plan(300, 0, every_steps=EVERY).faults]

    assert specs.count(FaultKind.KILL) > specs.count(FaultKind.OOM) > 0


def test_most_wait_until_all_are_back_and_some_overlap() -> None:
    faults = campaign_plan(300, 0, every_steps=EVERY).faults
    waiting = sum(fault.all_back for fault in faults)

    assert 150 < waiting < 280
    assert [fault.after_steps for fault in faults] == sorted(f.after_steps or 0 for f in faults)
    assert max(fault.after_steps or 0 for fault in faults) <= 300 * EVERY


def test_no_victim_is_told_beforehand_as_it_would_forget_it_with_its_death() -> None:
    assert not any(f.is_planned for f in campaign_plan(300, 0, every_steps=EVERY).faults)


def test_what_the_machine_lacks_is_left_out() -> None:
    plan = campaign_plan(300, 0, every_steps=EVERY, lacking=frozenset((ROOT, DISK, FREEZER)))
    kinds = {fault.kind for fault in plan.faults}

    assert not kinds & {FaultKind.OOM, FaultKind.DISK_FULL}
    assert not any(fault.where == "kernel" for fault in plan.faults)


def test_what_is_never_done_is_in_no_part() -> None:
    done = [read(spec) for part in MIX for spec in part.specs]

    assert not any(f.kind is FaultKind.FLIP_BIT and f.where == "gradient" for f in done)
    assert len(NEVER) == 1
