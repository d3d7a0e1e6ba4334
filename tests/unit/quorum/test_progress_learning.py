"""The judge of progress while a learner catches up: nobody waits for it (P-3, H-1)."""

from __future__ import annotations

import pytest

from danaus.quorum.agents import observation_of
from danaus.quorum.progress import ProgressSettings, Quiet, RebuildGroup, StallJudge
from danaus.wire.lifecycle import ProcessPosition
from danaus.wire.position import Phase

from .quorum_cases import Town
from .test_progress import COMPUTE, LEARN, REDUCE, A, B, C, Fleet, suspects
from .test_trailing import trailing


@pytest.fixture
def fleet() -> Fleet:
    """Two that train, and one that learns beside them."""
    made = Fleet(StallJudge(ProgressSettings(hang_limit_s=3.0)), (A, B, C))
    made.apart.add(C)
    made.move(C, 5, LEARN)
    return made


def learns(fleet: Fleet, seconds: float) -> list[object]:
    """Let bytes of a state arrive while the others do what they do."""
    out: list[object] = []
    for number in range(int(seconds / 0.2)):
        fleet.move(C, 5, LEARN, number)
        out += fleet.wait(0.2)
    return out


def test_a_learner_that_is_far_behind_hides_no_member_that_hangs(fleet: Fleet) -> None:
    fleet.move(A, 40, COMPUTE)
    fleet.move(B, 40, REDUCE, 1)
    assert suspects(learns(fleet, 3.4)) == [A]


def test_members_that_stand_in_one_exchange_are_rebuilt_while_one_learns(fleet: Fleet) -> None:
    for member in (A, B):
        fleet.move(member, 40, REDUCE, 1)
    assert [type(verdict) for verdict in learns(fleet, 3.4)] == [RebuildGroup]


def test_one_whose_bytes_come_slowly_does_not_hang_and_one_that_stands_still_does(
    fleet: Fleet,
) -> None:
    for step in range(40, 68):
        for member in (A, B):
            fleet.move(member, step, COMPUTE)
        assert fleet.wait(1.0) == []
    for step in range(68, 72):
        for member in (A, B):
            fleet.move(member, step, COMPUTE)
        if found := fleet.wait(1.0):
            break
    assert suspects(found) == [C]


def test_one_that_learns_and_is_stopped_is_suspected_as_soon_as_any_other(fleet: Fleet) -> None:
    fleet.stop(C)
    for step in range(40, 44):
        for member in (A, B):
            fleet.move(member, step, COMPUTE)
        if found := fleet.wait(1.0):
            break
    assert suspects(found) == [C]


@pytest.mark.parametrize("awaited", [True, False])
def test_a_learner_stands_apart_unless_members_wait_for_it(awaited: bool) -> None:
    seen = ProcessPosition("p", step=5, phase=Phase.LEARN, collective=3, still_s=1.0, waiting=True)
    observed = observation_of(seen, Quiet(0.1, 4.0, awaited=awaited))
    assert (observed.apart, observed.waiting) == (not awaited, awaited)


def test_the_machine_tells_whom_members_wait_for() -> None:
    town = Town()
    a, _, c = trailing(town)
    found = [town.machine.quiet(peer.member, town.now) for peer in (a, c)]
    assert [quiet.awaited for quiet in found if quiet is not None] == [True, False]
