"""T-1 to T-7, H-1: whoever dies in whichever phase, the run ends with an undisturbed run's bits."""

import pytest

from danaus.app.events import Event
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Moment
from danaus.testing.faults import FORWARD, REDUCE, VOTE, Pace, Strike
from danaus.testing.runs import Shape, running, small_run

STEPS = 100
"""Room for every strike; once all have hit and all are back, the rest takes no time."""
ALONE_STEP_S = 0.4
"""A step takes so long while somebody is away, so that the run does not end before his return."""

DONOR = Strike(Moment.SERVING, name="donor")
"""Whoever is asked first by a learner dies with the first part served."""

PLANS = {
    "3 replicas, 5 leaves": (
        Shape(replicas=3, leaves=5, steps=STEPS),
        {
            "replica-0": (Strike(FORWARD, 2), Strike(Moment.APPLIED, 9, incarnation=1)),
            "replica-1": (Strike(Moment.VOTED, 5), Strike(Moment.LEARNING, incarnation=1)),
            "replica-2": (Strike(REDUCE, 7), Strike(FORWARD, incarnation=1)),
        },
    ),
    "4 replicas, 7 leaves": (
        Shape(replicas=4, leaves=7, steps=STEPS),
        {
            "replica-0": (Strike(Moment.APPLIED, 2), Strike(VOTE, 7), DONOR),
            "replica-1": (
                Strike(FORWARD, 6, at_strength=4),
                Strike(FORWARD, 7),
                Strike(Moment.LEARNING),
                DONOR,
            ),
            "replica-2": (Strike(REDUCE, 10), DONOR),
            "replica-3": (Strike(Moment.VOTED, 10), DONOR),
        },
    ),
    "3 replicas of 2 ranks, 7 leaves": (
        Shape(replicas=3, ranks=2, leaves=7, steps=STEPS),
        {
            "replica-0": (Strike(FORWARD, 2, rank=1), Strike(VOTE, 9, at_strength=3)),
            "replica-1": (
                Strike(REDUCE, 4, rank=1, at_strength=3),
                Strike(Moment.LEARNING, incarnation=1),
                Strike(FORWARD, rank=1, incarnation=2),
            ),
            "replica-2": (
                Strike(Moment.APPLIED, 6, rank=1, at_strength=3),
                Strike(Moment.VOTED, 12),
            ),
        },
    ),
    "4 replicas of 2 ranks, 7 leaves": (
        Shape(replicas=4, ranks=2, leaves=7, steps=STEPS),
        {
            "replica-0": (Strike(Moment.APPLIED, 2), DONOR),
            "replica-1": (Strike(Moment.VOTED, 4, rank=1, at_strength=4), DONOR),
            "replica-2": (
                Strike(FORWARD, 6, at_strength=4),
                Strike(FORWARD, 6, rank=1, incarnation=1),
                DONOR,
            ),
            "replica-3": (Strike(REDUCE, 8, at_strength=4), Strike(Moment.LEARNING, rank=1), DONOR),
        },
    ),
}
"""Between them: inside forward, inside the reduction, inside and after the vote (before the
commit), between commit and announcement, while learning, the donor while it serves, and the same
replica twice in a row."""


NIGHTLY = {each for each in PLANS if each != "3 replicas, 5 leaves"}  # a minute or two each


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "plan",
    [pytest.param(each, marks=pytest.mark.slow if each in NIGHTLY else []) for each in PLANS],
)
def test_kills_in_every_phase_leave_no_trace(tmp_path, undisturbed, plan):
    shape, strikes = PLANS[plan]
    pace = Pace(ALONE_STEP_S, until=tmp_path / "all have hit", below=shape.replicas)
    observers = {name: (*strikes.get(name, ()), pace) for name in strikes}
    planned = {strike.id_of(name) for name, each in strikes.items() for strike in each}
    run = small_run(tmp_path / "run", shape, observers=observers)
    with running(run) as going:
        watch = going.watch
        watch.until("every strike", lambda: len(watch.strikes()) == len(planned), limit_s=90)
        pace.until.touch()
        result = going.result(90)
    hit = watch.strikes()
    assert {each["fault"] for each in hit} == planned
    assert watch.deaths() >= {(each["target"], each["incarnation"]) for each in hit}
    assert result.sha256 == undisturbed(run)
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    assert told.num_steps == STEPS


@pytest.mark.timeout(240)
def test_without_one_order_of_sums_the_members_still_hold_the_same_bits(tmp_path):
    """``step.bits off``: what is given up is that they are those of another membership."""
    shape = Shape(replicas=3, leaves=5, steps=40)
    pace = Pace(ALONE_STEP_S, until=tmp_path / "back", below=3)
    observers = {"replica-1": (Strike(Moment.VOTED, 5), pace), "replica-2": (pace,)}
    run = small_run(tmp_path / "run", shape, observers=observers, bits="off")
    with running(run) as going:
        watch = going.watch
        watch.until("the strike", lambda: watch.strikes() and watch.num_members == 2, limit_s=60)
        watch.until("all to be back", lambda: watch.num_members == 3, limit_s=60)
        pace.until.touch()
        going.result(90)
    assert {line["bits"] for line in watch.events(Event.WORKER_READY)} == {"off"}
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    assert told.num_steps == shape.steps
