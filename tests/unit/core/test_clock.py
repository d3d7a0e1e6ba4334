"""Deadlines follow the clock that they are given; what is written down follows the kernel's."""

import time

import pytest

from danaus.core.clock import BootClock, Deadline, MonotonicClock, time_of_day
from danaus.core.errors import DeadlinePassed
from danaus.testing.clock import ManualClock


def test_a_deadline_passes_when_its_moment_comes():
    clock = ManualClock(100.0)
    deadline = Deadline.after(2.0, clock)
    clock.advance(1.5)
    assert not deadline.passed
    assert deadline.remaining_s() == 0.5
    deadline.check("a reply")
    clock.advance(0.5)
    assert deadline.passed
    assert deadline.remaining_s() == 0.0
    with pytest.raises(DeadlinePassed, match=r"waited 2\.0 s for a reply"):
        deadline.check("a reply")


def test_manual_time_never_falls():
    clock = ManualClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)
    assert clock.now() == 0.0


def test_the_machines_clock_never_falls():
    clock = MonotonicClock()
    readings = [clock.now() for _ in range(100)]
    assert readings == sorted(readings)
    assert Deadline.after(60.0).remaining_s() > 59.0


def test_the_clock_that_goes_on_while_a_machine_sleeps_has_another_name_elsewhere(monkeypatch):
    for _ in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        readings = [BootClock().now() for _ in range(100)]
        assert readings == sorted(readings)
        monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)


def test_a_leap_of_the_steady_clock_on_purpose_leaves_the_time_that_is_written_down(monkeypatch):
    before, read = time_of_day(), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: read() + 3600.0)
    assert MonotonicClock().now() > read() + 3500.0
    assert 0.0 <= time_of_day() - before < 1800.0
