"""P-3, Q-7: whoever hangs in whichever phase is evicted, and only he; the bits stay the same."""

import signal

import pytest

from danaus.app.events import Event
from danaus.ft.observer import Moment
from danaus.testing.faults import FORWARD, JOIN, REDUCE, Pace, Strike
from danaus.testing.runs import Shape, running, small_run

HANG_LIMIT_S = 2.0


def stop(where, step=0, **more):
    return Strike(where, step, number=signal.SIGSTOP, at_strength=3, **more)


def beside(where, step=0, **more):
    """A stop beside or right after another."""
    return Strike(where, step, number=signal.SIGSTOP, **more)


STOPS = {
    "replica-0": (stop(FORWARD, 2, rank=1), beside(Moment.LEARNING), beside(JOIN, 5, name="join")),
    "replica-1": (stop(REDUCE, 5, rank=1), beside(JOIN, 5, name="join")),
    "replica-2": (stop(Moment.VOTED, 7), beside(JOIN, 5, name="join")),
}
"""One of two ranks inside forward, where its sibling waits in FSDP; a learner while the members
hold for it; one rank in the reduction, where the same rank of the other replicas stands alike; one
who is about to ask for the next quorum when another was evicted; between vote and commit."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_whoever_is_stopped_is_evicted_alone(tmp_path, undisturbed):
    shape = Shape(replicas=3, ranks=2, leaves=7, steps=100)
    pace = Pace(0.4, until=tmp_path / "all have hit", below=shape.replicas)
    observers = {name: (*strikes, pace) for name, strikes in STOPS.items()}
    planned = {strike.id_of(name) for name, each in STOPS.items() for strike in each}
    run = small_run(tmp_path / "run", shape, observers=observers, hang_limit_s=HANG_LIMIT_S)
    with running(run) as going:
        watch = going.watch
        watch.until("every stop", lambda: len(watch.strikes()) == len(planned), limit_s=90)
        pace.until.touch()
        result = going.result(90)
    stopped = {(each["target"], each["incarnation"]) for each in watch.strikes()}
    assert {each["fault"] for each in watch.strikes()} == planned
    assert watch.deaths() == stopped
    noticed = watch.events(Event.HANG_NOTICED)
    assert {(each["replica"], each["incarnation"]) for each in noticed} == stopped
    assert result.sha256 == undisturbed(run)
