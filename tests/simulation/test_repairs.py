"""H-3 in simulated time: one rank dies, its siblings go on in their processes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.plans import MEMBER_MOMENTS, Fault, Plan
from tests.simulation.world import World, run

from danaus.ft.step_events import Learn, Learned

STEPS = 25
SEEDS = [seed for seed in range(48) if seed % 4 in (0, 3) and seed % 3 == 2]
"""Of runs in which everybody can lend, and has room."""


def lessons(world: World) -> list[tuple[str, Learn, Learned]]:
    """Return what each process was to learn, and what it came to."""
    found: list[tuple[str, Learn, Learned]] = []
    begun: dict[str, Learn] = {}
    for _, who, what in world.engine.trace:
        if isinstance(what, Learn):
            begun[who] = what
        elif isinstance(what, Learned) and who in begun:
            found.append((who, begun.pop(who), what))
    return found


def kept(world: World) -> set[str]:
    """Return the processes that have gone on under another name, by that name."""
    return {member.name for member in world.processes.values() if member.before is not None}


def fetched(world: World) -> list[str]:
    """Return who fetched a whole state."""
    return [who for _, who, what in world.engine.trace if what == ("fetches", "a state")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("moment", MEMBER_MOMENTS)
def test_a_rank_may_be_lost_at_any_moment(moment: str, ranks: int) -> None:
    for nth in (1, 4, 9):
        world = run(_plan(nth, Fault("kill", moment, nth), ranks=ranks))
        assert len(world.monitor.ends) >= 2 * ranks, "it may be back too late"


def test_only_the_new_process_fetches_a_state_and_its_siblings_take_gradients() -> None:
    num_repaired = 0
    for seed in SEEDS:
        world = run(_plan(seed, Fault("kill", "computed", 20), steps=60))
        num_repaired += world.num_repaired
        siblings = kept(world)
        for who, order, learned in lessons(world) if siblings else ():
            assert order.held_step is not None or who not in siblings
            assert learned.step >= order.step
        assert not siblings.intersection(fetched(world))
    assert num_repaired >= len(SEEDS) // 2


@pytest.mark.parametrize(
    "second",
    [
        Fault("kill", "joining", 1, who=0),
        Fault("kill", "learning", 1),
        Fault("kill", "fetched", 1),
        Fault("kill", "replayed", 2),
        Fault("hang", "computed", 20, who=1),
        Fault("lose host", "learning", 1),
        Fault("crash service", "learning", 1),
        Fault("wipe service", "learning", 1),
        Fault("second service", "learning", 1),
        Fault("isolate from service", "computed", 21, who=2, span=40),
        Fault("mute to service", "computed", 21, who=3, span=40),
        Fault("kill all", "replayed", 1),
        Fault("kill others", "learning", 1),
        Fault("echo", "time", 0, who=2),
    ],
    ids=lambda fault: f"{fault.kind} at {fault.moment}",
)
def test_something_else_may_happen_during_a_repair(second: Fault) -> None:
    num_repaired = 0
    for seed in SEEDS:
        first = Fault("kill", "computed", 20, who=seed % 6)
        world = run(_plan(seed, first, second, steps=40))
        num_repaired += world.num_repaired
    assert num_repaired >= len(SEEDS) // 2


def _plan(seed: int, *faults: Fault, ranks: int = 2, steps: int = STEPS, **more: Any) -> Plan:
    return Plan(
        seed=seed, replicas=3, ranks=ranks, steps=steps, repairs=True, faults=faults, **more
    )
