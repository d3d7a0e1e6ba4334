"""Who passes on to whom (A-11)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from danaus.actor.tree import FAN_OUT, Branch, plan


def everyone(branches):
    """Yield every branch, at whatever depth."""
    for branch in branches:
        yield branch
        yield from everyone(branch.below)


def depth(branch):
    """Return how often what is sent is sent on, at most, until all have it."""
    return 1 + max(map(depth, branch.below), default=0)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), max_size=400),
    st.integers(1, 20),
)
def test_each_point_is_reached_once_and_nobody_sends_too_often(places, fan_out):
    branches = plan(tuple((host, (host, process)) for host, process in places), fan_out)
    assert len(branches) <= fan_out
    seen = []
    for branch in everyone(branches):
        assert len(branch.below) <= fan_out
        assert all(places[at] == branch.process for at in branch.points)
        seen.extend(branch.points)
    assert sorted(seen) == list(range(len(places)))
    assert len({branch.process for branch in everyone(branches)}) == len(set(places))


def test_few_are_sent_to_directly():
    branches = plan(tuple(("host", at) for at in range(FAN_OUT)))
    assert branches == tuple(Branch(at, (at,)) for at in range(FAN_OUT))


def test_a_host_hears_once_and_tells_its_own_processes():
    branches = plan(tuple((at // 4, at) for at in range(4 * FAN_OUT)))
    assert [branch.process for branch in branches] == list(range(0, 4 * FAN_OUT, 4))
    assert [below.process for below in branches[0].below] == [1, 2, 3]


def test_a_thousand_hosts_are_reached_in_few_steps():
    branches = plan(tuple((at, at) for at in range(1000)))
    assert len(branches) == FAN_OUT
    assert max(map(depth, branches)) == 3
    assert sorted(at for branch in branches for at in branch.all_points) == list(range(1000))
