"""A wait is awake for a moment, asleep from then on, and gives way to whoever wants to run."""

import math

import pytest

from danaus.collectives.waiting import wait_for_events
from danaus.core.clock import Deadline

EVENT = (7, 1)
LOOK_S = 10e-6


class Ticking:
    """A clock that moves on whenever it is read: by a look's time, or by what a test says.

    Args:
        ticks: Seconds that pass at each reading; the last counts for all that follow.
    """

    def __init__(self, *ticks):
        self._ticks = list(ticks)
        self.at_s = 0.0

    def now(self):
        self.at_s += self._ticks.pop(0) if len(self._ticks) > 1 else self._ticks[0]
        return self.at_s


class Poller:
    """Tells of an event at one of the looks, or when it sleeps.

    Args:
        at: The number of the look, from 1; 0: only who sleeps hears of it.
    """

    def __init__(self, at=0):
        self._at = at
        self.looks = 0
        self.sleeps = []

    def poll(self, timeout_ms):
        if timeout_ms:
            self.sleeps.append(timeout_ms)
            return [EVENT]
        self.looks += 1
        return [EVENT] if self.looks == self._at else []


def wait(poller, clock, limit_s=20.0):
    return wait_for_events(poller, Deadline.after(limit_s, clock))


@pytest.mark.parametrize("at", [1, 3])
def test_what_comes_within_the_moment_is_seen_without_a_sleep(at):
    poller = Poller(at)
    assert wait(poller, Ticking(LOOK_S)) == [EVENT]
    assert (poller.looks, poller.sleeps) == (at, [])


def test_after_a_millisecond_it_sleeps_once_for_all_the_time_that_is_left():
    poller, clock = Poller(), Ticking(LOOK_S)
    assert wait(poller, clock) == [EVENT]
    # Two readings a look: before it gives way and after.
    assert poller.looks == pytest.approx(0.001 / (2 * LOOK_S), abs=1)
    assert poller.sleeps == [math.ceil((20.0 - clock.at_s + LOOK_S) * 1000)]


def test_it_sleeps_at_once_where_another_ran_when_it_gave_way():
    # Readings: the deadline, the beginning, before it gives way, after.
    poller = Poller()
    wait(poller, Ticking(LOOK_S, LOOK_S, LOOK_S, 60e-6, LOOK_S))
    assert (poller.looks, len(poller.sleeps)) == (1, 1)


def test_a_yield_without_anybody_else_is_no_reason_to_sleep():
    poller = Poller(at=3)
    wait(poller, Ticking(LOOK_S, LOOK_S, LOOK_S, 40e-6, LOOK_S))
    assert (poller.looks, poller.sleeps) == (3, [])


def test_it_is_not_awake_beyond_the_deadline():
    poller, clock = Poller(), Ticking(LOOK_S)
    assert wait(poller, clock, limit_s=10 * LOOK_S) == []
    assert clock.at_s < 0.001 / 2
    assert poller.sleeps == []


def test_after_the_deadline_it_looks_and_does_not_wait():
    poller = Poller(at=1)
    assert wait(poller, Ticking(LOOK_S), limit_s=0.0) == [EVENT]
    poller = Poller()
    assert wait(poller, Ticking(LOOK_S), limit_s=0.0) == []
    assert poller.sleeps == []
