"""Who is persistently slower than the others, told by one member, once for each window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import ConfigError
from danaus.ft.stragglers import LEAST_PACE_S, PaceLimits, PaceWatch
from danaus.quorum.messages import MemberId

A, B, C = (MemberId(name, 0, 1) for name in "abc")
LIMITS = PaceLimits(factor=1.5, num_steps=10)


def told(steps, *, me=A, limits=LIMITS):
    """What ``me`` tells of steps, each the paces of a, b and c."""
    watch = PaceWatch(me, limits)
    return [
        (found.step, found.about.replica_id, found.kind)
        for number, paces in enumerate(steps, 1)
        for found in watch.observe(number, dict(zip((A, B, C), paces, strict=True)))
    ]


def test_who_is_slow_throughout_is_named_and_again_with_each_window():
    slow = [(0.1, 0.1, 0.2)] * 30
    assert told(slow) == [(10, "c", "slow"), (20, "c", "slow"), (30, "c", "slow")]


def test_one_member_tells_and_nobody_tells_of_itself():
    assert told([(0.1, 0.1, 0.2)] * 10, me=B) == []
    assert told([(0.2, 0.1, 0.1)] * 10, me=A) == []
    assert told([(0.2, 0.1, 0.1)] * 10, me=B) == [(10, "a", "slow")]


def test_a_few_slow_steps_are_nobodys_fault():
    few = [(0.1, 0.1, 5.0) if number % 3 == 0 else (0.1, 0.1, 0.1) for number in range(60)]
    assert told(few) == []


def test_one_that_is_slow_most_of_the_time_is_named():
    most = [(0.1, 0.1, 0.1) if number % 3 == 0 else (0.1, 0.1, 0.3) for number in range(20)]
    assert told(most)[0] == (10, "c", "slow")


def test_it_is_told_when_it_is_over():
    over = [(0.1, 0.1, 0.2)] * 10 + [(0.1, 0.1, 0.1)] * 20
    assert told(over)[:2] == [(10, "c", "slow"), (16, "c", "not_slow")]


def test_the_ranks_of_a_replica_are_judged_against_other_replicas():
    watch = PaceWatch(A, LIMITS)
    ranks = [MemberId("c", rank, 1) for rank in range(2)]
    paces = {A: 0.1, B: 0.1, ranks[0]: 0.1, ranks[1]: 0.3}
    found = [each for number in range(10) for each in watch.observe(number, paces)]
    assert [each.about for each in found] == [ranks[1]]
    assert "took 3.0 times as long as the others over the last 10 steps" in found[0].reason


def test_who_computes_nothing_or_is_alone_is_not_judged():
    assert told([(0.1, 0.1, 0.0)] * 20) == []
    watch = PaceWatch(A, LIMITS)
    assert not [each for number in range(20) for each in watch.observe(number, {A: 0.1})]


def test_a_new_incarnation_starts_afresh():
    watch = PaceWatch(A, LIMITS)
    again = MemberId("c", 0, 2)
    found = []
    for number in range(1, 11):
        found += watch.observe(number, {A: 0.1, B: 0.1, C: 0.3})
    for number in range(11, 20):
        found += watch.observe(number, {A: 0.1, B: 0.1, again: 0.3})
    assert [each.about for each in found] == [C]
    assert [each.about for each in watch.observe(20, {A: 0.1, B: 0.1, again: 0.3})] == [again]


@given(st.lists(st.floats(0.0, LEAST_PACE_S / 2), min_size=3, max_size=3))
def test_what_is_too_fast_to_be_told_apart_is_not_judged(paces):
    assert told([paces] * 20) == []


def test_it_can_be_switched_off_and_odd_limits_are_refused():
    assert told([(0.1, 0.1, 9.0)] * 30, limits=PaceLimits(factor=0)) == []
    with pytest.raises(ConfigError, match="above 1, or 0 for never"):
        PaceLimits(factor=0.9)
    with pytest.raises(ConfigError, match="at least 1"):
        PaceLimits(num_steps=0)
