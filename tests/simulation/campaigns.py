"""Long runs under hundreds of faults of every kind, one campaign for each seed."""

from __future__ import annotations

import random

from tests.simulation.plans import Plan

from danaus.testing import FaultPlan

MILD = (
    "slow:amount=3x,for=3s",
    "slow:process=coordinator,amount=5x,for=3s",
    "hang:for=1s",
    "hang:process=coordinator,for=2s",
    "hang:process=host_agent,for=2s",
    "loss:amount=30%,for=5s",
    "delay:amount=300ms,for=4s",
    "partition:for=1s",
    "partition:one_way=true,for=1s",
    "disk_full:for=5s",
    "nan",
    "clock_jump:where=day",
    "clock_jump:where=monotonic",
    "flip_bit:where=gradient",
    "flip_bit:where=sum",
    "flip_bit:where=exchange",
    "flip_bit:where=checkpoint",
    "kill_nursery",
    "kill_controller",
)
"""Nobody dies of these, unless he was about to."""

HARSH = (
    "kill",
    "kill:at_phase=reduce",
    "kill:at_phase=vote",
    "kill:at_phase=voted",
    "kill:at_phase=apply",
    "kill:at_phase=applied",
    "kill:at_phase=join",
    "kill:at_phase=learning",
    "kill:at_phase=replayed",
    "kill:at_phase=serving",
    "segv:at_phase=forward",
    "oom",
    "hang",
    "hang:where=gil",
    "hang:where=collective",
    "hang:where=loader",
    "hang:where=kernel,for=6s",
    "hang:process=coordinator",
    "hang:process=host_agent",
    "partition:for=6s",
    "partition:for=15s",
    "partition:one_way=true,for=6s",
    "partition:one_way=true,for=15s",
    "flip_bit:where=parameters",
    "flip_bit:where=optimizer",
    "flip_bit:where=transfer",
    "nan:where=parameters",
    "kill_coordinator",
    "kill_coordinator:for=4s",
    "kill_coordinator:where=disk",
    "kill_coordinator:where=disk,for=4s",
    "kill_host_agent",
    "kill_host",
    "preempt",
    "preempt:process=worker",
)
NUM_CAMPAIGNS = 14
NUM_RULES = 10
TIMES = 12


def campaign(seed: int) -> tuple[Plan, FaultPlan]:
    """Return a run and what is done to it: about ``NUM_RULES * TIMES`` faults."""
    chance = random.Random(seed)
    replicas = chance.randint(2, 4)
    plan = Plan(
        seed=seed,
        replicas=replicas,
        ranks=1 + (chance.random() < 0.4),
        steps=100,
        exact=chance.random() < 0.25,
        slow=chance.choice((0, 3)),
        service_on=chance.choice((None, 0)),
        hosts=chance.choice(((), tuple(place // 2 for place in range(replicas)))),
    )
    several = plan.fleet.num_hosts > 1
    kinds = [each for each in (*MILD, *HARSH) if several or not each.startswith("partition")]
    specs = [_rule(kind, chance) for kind in chance.sample(kinds, NUM_RULES)]
    return plan, FaultPlan.parse(*specs, seed=seed)


def _rule(kind: str, chance: random.Random) -> str:
    rhythms = (
        f"every={chance.randint(2, 8)}steps",
        f"every={chance.randint(10, 60) / 10}s",
        f"every={chance.randint(2, 6)}steps,all_back=true",
    )
    return f"{kind}{',' if ':' in kind else ':'}{chance.choice(rhythms)},times={TIMES}"
