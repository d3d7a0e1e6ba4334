"""Quorum, step and healing together, through thousands of schedules of faults.

Every failure prints a ``Plan`` and keeps it in a file of the temporary folder; ``run(plan)``
replays it, ``story(world.engine.trace)`` tells it.  ``tests.simulation.many`` runs many more.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.simulation.plans import FAULTS, MOMENTS, Fault, Plan, plans, random_plan
from tests.simulation.world import run

QUICK = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LONG = settings(QUICK, max_examples=20_000, derandomize=False)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_an_undisturbed_run_takes_one_epoch_and_reaches_its_end(replicas, ranks):
    world = run(Plan(replicas=replicas, ranks=ranks, steps=6))
    assert len(world.monitor.ends) == replicas * ranks
    assert world.monitor.lineage[6][0] == world.monitor.lineage[1][0]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_at_each_moment(kind):
    for moment in MOMENTS:
        for nth in (1, 4, 7):
            if moment == "time":
                nth *= 3
            fault = Fault(kind, moment, nth, span=(5, 20, 80)[nth % 3])
            run(
                Plan(seed=nth, replicas=2 + nth % 2, ranks=1 + (nth == 7), steps=3, faults=(fault,))
            )


@pytest.mark.timeout(600)
@QUICK
@given(plan=plans())
def test_any_schedule(plan):
    run(plan)


ONCE_FAILED = (
    # A member's own words came again after it had said more: it counted as another process of
    # its name and was left behind without a fence.
    Plan(
        seed=4224307,
        steps=2,
        slow=15,
        faults=(Fault("echo", "time", 0, who=1, span=5), Fault("kill", "time", 5, who=0, span=5)),
    ),
    # A newcomer had asked long before the members' step was over: who was last was left behind.
    Plan(
        seed=441652071,
        replicas=4,
        slow=15,
        faults=(Fault("lose agent", "time", 0, span=5), Fault("pause", "time", 11, span=150)),
    ),
    # One that was replaced was refused, and a person was taken to have resumed the whole run.
    Plan(
        seed=14,
        steps=15,
        slow=3,
        faults=(
            Fault("isolate from service", "time", 6, who=1, span=80),
            Fault("second service", "time", 14),
            Fault("replace", "ballot sent", 5, who=1, span=80),
        ),
    ),
    # Who had committed died with the disk's word of it, and a learner alone knew: all went back.
    Plan(
        seed=3712263808,
        steps=3,
        slow=30,
        faults=(
            Fault("wipe service", "contribution sent", 7, span=80),
            Fault("kill", "voted", 1, span=5),
            Fault("wedge", "ballot came", 2, who=3, span=150),
            Fault("wipe service", "announced", 11, span=20),
        ),
        replicas=4,
    ),
    # The checkpoint of the last step counted before all had ended with one state: both went back
    # to what one of them had spoiled.
    Plan(
        seed=3233802954,
        replicas=2,
        faults=(
            Fault("crash service", "reduced", 8, span=80),
            Fault("wipe service", "committing", 8, who=3, span=20),
            Fault("flip", "applied", 7, who=2, span=150),
        ),
    ),
    # Of these two the simulated world itself was wrong: one that hears nobody may be left behind
    # without a fence, once it is too late to ask; and what a lost disk held may be said again.
    Plan(
        seed=1887422855,
        steps=3,
        slow=30,
        drift=1,
        exact=False,
        faults=(
            Fault("pause", "learning", 1, who=0, span=80),
            Fault("evict", "voted", 4, span=20),
            Fault("deafen", "committing", 4, span=150),
        ),
    ),
    Plan(
        seed=2519768962,
        replicas=2,
        ranks=3,
        steps=5,
        slow=30,
        exact=False,
        repairs=True,
        faults=(
            Fault("fill disk", "voted", 10, span=5),
            Fault("cut service", "applied", 6, span=5),
            Fault("deafen", "committing", 9, who=2, span=150),
            Fault("wipe service", "discarding", 2, who=3, span=5),
            Fault("second service", "discarding", 1, span=20),
        ),
    ),
)


@pytest.mark.parametrize("plan", ONCE_FAILED, ids=range(len(ONCE_FAILED)))
def test_schedules_that_once_failed(plan):
    run(plan)


@pytest.mark.timeout(600)
def test_many_schedules():
    for seed in range(500):
        run(random_plan(seed))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@LONG
@given(plan=plans())
def test_any_schedule_at_length(plan):
    run(plan)
