"""Where a step's time goes."""

from __future__ import annotations

from danaus.ft.stopwatch import Stopwatch
from danaus.testing.clock import ManualClock


def step(watch: Stopwatch, clock: ManualClock, **spent_s: float) -> dict[str, float]:
    for phase, seconds in spent_s.items():
        watch.enter(phase)
        clock.advance(seconds)
    return watch.take()


def test_seconds_are_added_up_by_phase_and_begin_anew() -> None:
    clock = ManualClock()
    watch = Stopwatch(clock)
    assert watch.usual_s == 0.0
    assert step(watch, clock, compute=2.0, vote=0.5) == {"compute": 2.0, "vote": 0.5}
    assert step(watch, clock, compute=1.0) == {"vote": 0.0, "compute": 1.0}


def test_a_step_takes_what_the_last_ones_took_without_what_lies_between_them() -> None:
    clock = ManualClock()
    watch = Stopwatch(clock)
    step(watch, clock, join=30.0, compute=1.0, vote=0.5)
    assert watch.usual_s == 1.5
    step(watch, clock, hold=4.0, learn=9.0, compute=60.0)
    step(watch, clock, compute=2.0)
    assert watch.usual_s == 2.0
    for _ in range(5):
        step(watch, clock, compute=0.25)
    assert watch.usual_s == 0.25
