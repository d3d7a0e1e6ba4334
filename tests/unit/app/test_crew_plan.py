"""What to start and what to drain when the crew of a run changes, and where a replica goes."""

from __future__ import annotations

import pytest

from danaus.app.crew_plan import Change, Limits, hosts_to_roll, may_leave, next_host, scale
from danaus.core.errors import ConfigError

LIMITS = Limits(min_replicas=2, num_leaves=6)


def test_the_newest_leave_first() -> None:
    assert scale({0, 1, 2, 3, 4}, 2, LIMITS) == Change(drain=(4, 3, 2))


def test_those_that_left_come_back_before_new_ones_begin() -> None:
    assert scale({0, 2}, 5, LIMITS) == Change(start=(1, 3, 4))
    assert scale({1, 4}, 3, LIMITS) == Change(start=(0,))


def test_nothing_changes_where_there_are_as_many() -> None:
    assert scale({0, 1, 2}, 3, LIMITS) == Change()


@pytest.mark.parametrize(
    ("replicas", "limits", "words"),
    [
        (1, LIMITS, "at least 2"),
        (0, Limits(0, 6), "at least 1"),
        (7, LIMITS, "at most 6 have something to compute"),
        (4, Limits(1, 6, elastic=True), "laid out for the replicas that it began with"),
    ],
)
def test_what_cannot_be_is_refused_in_words(replicas: int, limits: Limits, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scale({0, 1, 2}, replicas, limits)


def test_who_leaves_leaves_a_quorum_behind() -> None:
    may_leave((2,), {0, 1, 2}, min_replicas=2)
    may_leave((3,), {0}, min_replicas=1)  # it is not counted: nothing changes
    with pytest.raises(ConfigError, match=r"replica-1, replica-2 cannot leave: 1 of 2"):
        may_leave((2, 1), {0, 1, 2}, min_replicas=2)
    with pytest.raises(ConfigError, match="0 of 1"):
        may_leave((0,), {0}, min_replicas=0)


def test_a_roll_goes_on_where_it_was_interrupted() -> None:
    assert hosts_to_roll(3, (), None) == (0, 1, 2)
    assert hosts_to_roll(3, (0, 2), None) == (1,)
    assert hosts_to_roll(3, (0, 1), 1) == (1,)


@pytest.mark.parametrize(
    ("load", "away_s", "wait_s", "leaves", "host"),
    [
        ((0, 1, 0), None, None, False, 0),  # nothing is wrong with its own
        ((None, 1, 0), 9.0, None, False, 0),  # it waits for its own
        ((None, 1, 0), 9.0, 5.0, False, 2),  # long enough
        ((None, 1, 0), 4.0, 5.0, False, 0),
        ((None, 1, 0), None, None, True, 2),  # a spare host takes who was told to go
        ((None, 1, 1), None, None, True, 0),  # there is none
        ((None, 1, 1), 9.0, 5.0, True, 1),
        ((None, None, None), 9.0, 5.0, True, 0),
    ],
)
def test_where_a_replica_is_tried_next(load, away_s, wait_s, leaves, host) -> None:
    assert next_host(0, load, away_s=away_s, wait_s=wait_s, leaves=leaves) == host
