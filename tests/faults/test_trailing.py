"""H-1: the members go on while a learner loads, whoever dies meanwhile, to the undisturbed bits."""

from __future__ import annotations

import os
import signal

import pytest

from danaus.app.events import Event
from danaus.app.settings import QuorumConfig
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Moment
from danaus.testing.faults import Linger, Pace, Strike
from danaus.testing.runs import Shape, running, small_run

SHAPE = Shape(replicas=3, leaves=6, steps=80)
LINGERS = 6


@pytest.fixture
def run(tmp_path):
    """Return a function that starts a run whose ``replica-1`` dies in step 3 and loads slowly."""
    pace = Pace(0.15, until=tmp_path / "over", below=3)

    def make(hold_share=0.0, lingers=Linger(LINGERS), **more):  # noqa: B008 - a frozen value
        falls = {"replica-1": (Strike("forward", 3, incarnation=0), lingers)}
        names = [f"replica-{number}" for number in range(3)]
        observers = {name: (pace, *falls.get(name, ()), *more.get(name, ())) for name in names}
        quorum = QuorumConfig(hold_share=hold_share)
        return small_run(tmp_path / "run", SHAPE, observers=observers, quorum=quorum)

    make.over = pace.until
    return make


def replica(number, *observers):
    return {f"replica-{number}": observers}


def finished(make, going, undisturbed, *, num_caught_up=1):
    """Wait until the learner is back, then for the end; return the run's watch."""
    watch = going.watch
    back = lambda: (  # noqa: E731
        watch.events(Event.LEARNING_STARTED)
        and len(caught_up(watch)) >= num_caught_up
        and watch.num_members == 3
    )
    watch.until("all to be back", back, limit_s=90)
    make.over.touch()
    result = going.result(90)
    assert result.sha256 == undisturbed(going.run)
    told = verify(merge(going.run.folder.ledger_paths()))
    assert told.ok, told.problems
    return watch


def caught_up(watch):
    """Return what learners applied of what the members did while they loaded."""
    return [line for line in watch.events(Event.CAUGHT_UP) if line["steps"] >= LINGERS - 1]


def num_holds(watch):
    return len(watch.events(Event.QUORUM_ANNOUNCED, hold=True))


@pytest.mark.timeout(240)
def test_members_take_steps_while_a_learner_loads_and_wait_once(run, undisturbed):
    with running(run()) as going:
        watch = finished(run, going, undisturbed)
    (begun, *_) = watch.events(Event.LEARNING_STARTED)
    assert begun["trails"]
    assert num_holds(watch) == 1
    assert [line["step"] for line in watch.events(Event.HEALED)] == [begun["step"]]
    (entered,) = watch.events(Event.QUORUM_ANNOUNCED, hold=True)
    assert entered["committed_step"] >= begun["step"] + LINGERS
    assert {line["step"] for line in watch.events(Event.STEP_DISCARDED)} == {3}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_members_wait_for_a_learner_that_is_quicker_than_what_it_saves(run, undisturbed):
    with running(run(hold_share=100.0)) as going:
        watch = finished(run, going, undisturbed, num_caught_up=0)
    (begun,) = watch.events(Event.LEARNING_STARTED)
    (held,) = watch.events(Event.QUORUM_ANNOUNCED, hold=True)
    assert not begun["trails"]
    assert "by which one more makes a step shorter" in str(held["reason"])
    assert held["committed_step"] == begun["step"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_one_that_is_not_as_quick_as_that_trails(run, undisturbed):
    with running(run(hold_share=100.0, lingers=Linger(LINGERS, held=True))) as going:
        watch = finished(run, going, undisturbed)
    begun = watch.events(Event.LEARNING_STARTED)
    assert [line["trails"] for line in begun[:2]] == [False, True]
    assert {line["step"] for line in watch.events(Event.STEP_DISCARDED)} == {3}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("moment", [Moment.LEARNING, Moment.REPLAYED])
def test_a_learner_that_dies_on_the_way_discards_nothing(run, undisturbed, moment):
    dies = Strike(moment, incarnation=1)
    with running(run(**replica(1, dies, Linger(LINGERS, incarnation=2)))) as going:
        watch = finished(run, going, undisturbed)
    assert ("replica-1", 1) in watch.deaths()
    assert {line["step"] for line in watch.events(Event.STEP_DISCARDED)} == {3}
    assert num_holds(watch) <= 2


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_donor_that_dies_while_it_serves_is_done_without(run, undisturbed):
    """Whichever it is that serves first; it learns in its turn, from those that are left."""
    dies = Strike(Moment.SERVING, incarnation=0, name="donor")
    with running(run(**replica(0, dies), **replica(2, dies))) as going:
        watch = finished(run, going, undisturbed)
    (donor,) = {name for name, _ in watch.deaths()} - {"replica-1"}
    learned = {line["replica"] for line in watch.events(Event.LEARNING_STARTED)}
    assert learned == {donor, "replica-1"}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_service_may_die_meanwhile(run, undisturbed):
    with running(run()) as going:
        watch = going.watch
        watch.until("a learner", lambda: watch.events(Event.LEARNING_STARTED), limit_s=60)
        os.kill(watch.service_pid(), signal.SIGKILL)
        watch.until("another", lambda: watch.events(Event.SERVICE_RESTARTED), limit_s=60)
        finished(run, going, undisturbed)
    assert num_holds(watch) == 1
