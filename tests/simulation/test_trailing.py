"""Learners that catch up while the members go on, in simulated time (H-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation import families
from tests.simulation.plans import Fault, Plan
from tests.simulation.world import World, run

SEEDS = [seed for seed in range(48) if seed % 4 in (0, 3) and seed % 3 == 2 and seed % 7 != 6]
"""Of runs in which everybody can lend, and has room, and a transfer takes longer than a step."""
QUICK = [seed for seed in range(150) if seed % 4 in (0, 3) and seed % 3 == 2 and seed % 7 == 6]
"""Of such runs in which one is held to take less."""


def orders(world: World, *kinds: str) -> Iterator[tuple[float, str, Any]]:
    """Yield what processes were ordered or told, of some kinds, in order of time."""
    return ((at, who, what) for at, who, what in world.engine.trace if type(what).__name__ in kinds)


def trails(world: World) -> int:
    """Return how many learners began to trail."""
    return sum(order.learner.trail is not None for _, _, order in orders(world, "Learn"))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_members_go_on_while_a_learner_loads_and_stop_once_for_it(seed: int) -> None:
    world = run(Plan(seed=seed, replicas=3, steps=60, faults=(Fault("kill", "computed", 12),)))
    began, learner = next((at, who) for at, who, _ in orders(world, "Learn"))
    announced = [told.announcement for _, _, told in orders(world, "Announce") if not told.again]
    assert [told.hold for told in announced if told.learners] in ([False], [False, True])
    asked = next(at for at, who, _ in orders(world, "Learned") if who == learner and at > began)
    ahead = {what.step for at, _, what in orders(world, "Applied") if began < at < asked}
    assert len(ahead) >= 1
    assert len(world.monitor.ends) == 3
    assert world.engine.moments["caught up"] == 1


@pytest.mark.parametrize("moment", ["learning", "fetched", "replayed", "caught up"])
def test_the_death_of_a_learner_that_trails_discards_nothing_and_stops_nobody(moment: str) -> None:
    num_struck = 0
    for seed in SEEDS:
        faults = (Fault("kill", "computed", 12), Fault("kill", moment, 1))
        world = run(Plan(seed=seed, replicas=3, steps=80, faults=faults))
        deaths = [
            (at, who)
            for at, who, what in world.engine.trace
            if isinstance(what, str) and what.startswith("dies: killed")
        ]
        if len(deaths) < 2:
            continue  # it was never behind
        num_struck += 1
        (died, learner) = deaths[1]
        started = next(at for at, who, _ in orders(world, "Started") if at > died)
        assert not [at for at, _, _ in orders(world, "Discard") if at > died]
        left = [who for at, who, _ in orders(world, "JoinQuorum") if died < at < started]
        assert left == [] or moment == "caught up", f"{learner} died"
        assert len(world.monitor.ends) == 3
    assert num_struck >= len(SEEDS) // 2


def test_a_learner_outlives_a_change_of_the_quorum() -> None:
    """Another replica dies while one trails: it trails on, with the donors that are left."""
    num_outlived = 0
    for seed in SEEDS:
        faults = (Fault("kill", "computed", 12), Fault("kill", "learning", 1, who=0))
        world = run(Plan(seed=seed, replicas=3, steps=80, faults=faults))
        told = [each.announcement for _, _, each in orders(world, "Announce")]
        carried = [
            each.epoch
            for each in told
            for learner in each.learners
            if learner.trail is not None and learner.trail.epoch < each.epoch
        ]
        begun = [who for _, who, order in orders(world, "Learn") if order.learner.trail]
        num_outlived += bool(carried) and len(begun) == len(set(begun))
    assert num_outlived >= len(SEEDS) // 3


def test_a_learner_that_will_be_quick_is_waited_for_once_and_trails_if_it_is_not() -> None:
    num_holds = num_late = 0
    for seed in QUICK:
        world = run(Plan(seed=seed, replicas=3, steps=60, faults=(Fault("kill", "computed", 12),)))
        told = [each.announcement for _, _, each in orders(world, "Announce") if not each.again]
        began = [each.trail is not None for each in (a for t in told for a in t.learners)]
        assert began[0] is False, "at first it is waited for"
        assert not any(began) or world.engine.moments["caught up"] == 1
        num_holds, num_late = num_holds + 1, num_late + any(began)
        assert len(world.monitor.ends) == 3
    assert 0 < num_late < num_holds


@pytest.mark.parametrize("family", families.TRAILS, ids=lambda family: family.__name__)
def test_whatever_becomes_of_donors_logs_and_lineages_the_end_is_reached(family: Any) -> None:
    assert sum(trails(run(family(seed))) for seed in range(14)) >= 8
