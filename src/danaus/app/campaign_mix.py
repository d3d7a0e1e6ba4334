"""The plan of a campaign: which faults of which kinds, in which order, and which of them overlap.

Owns the mix and ``campaign_plan``.  The same number and seed make the same plan.  Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from danaus.app.chaos import FaultPlan

_OVERLAPS_ONE_IN = 6
"""So often a fault strikes while another is not over, whoever it hits."""
_TOGETHER_STEPS = 3


@dataclass(frozen=True, slots=True)
class Part:
    """Something that a campaign does again and again.

    Args:
        specs: Faults that belong together; those after the first strike a few steps later.
        share: How much of a campaign it is, beside the others.
        needs: What the machine must have for it.
    """

    specs: tuple[str, ...]
    share: int
    needs: str = ""


ROOT, FREEZER, DISK = "memory cgroups that may be written", "a freezer cgroup", "a disk of its own"
NETWORK = "hosts with a network between them (--hosts)"

MIX = (
    Part(("kill",), 10),
    Part(("kill:at_phase=forward",), 2),
    Part(("kill:at_phase=reduce",), 2),
    Part(("kill:at_phase=vote",), 2),
    Part(("kill:at_phase=applied",), 2),
    Part(("kill:at_phase=serving,replica=2", "kill:replica=1"), 2),
    Part(("kill", "kill"), 2),
    Part(("segv",), 4),
    Part(("oom",), 3, ROOT),
    Part(("hang",), 5),
    Part(("hang:where=gil",), 2),
    Part(("hang:where=collective",), 2),
    Part(("hang:where=loader",), 2),
    Part(("hang:where=kernel",), 1, FREEZER),
    Part(("hang:for=1s",), 2),
    Part(("hang:process=nursery,for=1s",), 1),
    Part(("hang:process=host_agent,for=1s",), 1),
    Part(("hang:process=host_agent",), 1),
    Part(("hang:process=coordinator",), 1),
    Part(("hang:process=controller,for=1s",), 2),
    Part(("slow:for=2s",), 2),
    Part(("slow:process=coordinator,amount=10x,for=2s",), 1),
    Part(("disk_full:for=1s",), 3, DISK),
    Part(("flip_bit:where=parameters",), 3),
    Part(("flip_bit:where=optimizer",), 3),
    Part(("flip_bit:where=sum",), 3),
    Part(("flip_bit:where=exchange",), 3),
    Part(("flip_bit:where=transfer,replica=0", "kill:replica=1"), 2),
    Part(("flip_bit:where=checkpoint", "kill_controller"), 1),
    Part(("nan:where=gradient",), 3),
    Part(("nan:where=parameters",), 2),
    Part(("clock_jump:where=day",), 2),
    Part(("clock_jump:where=monotonic",), 2),
    Part(("kill_coordinator",), 3),
    Part(("kill_coordinator:where=disk",), 2),
    Part(("kill_coordinator:for=1s", "kill"), 2),
    Part(("kill_controller",), 1),
    Part(("kill_nursery",), 4),
    Part(("kill_nursery", "kill"), 1),
    Part(("kill_host_agent",), 4),
    Part(("kill_host",), 4),
    Part(("preempt",), 2),
    Part(("preempt:process=worker",), 2),
    Part(("partition:for=2s",), 3, NETWORK),
    Part(("partition:for=8s",), 2, NETWORK),
    Part(("partition:one_way=true,for=2s",), 2, NETWORK),
    Part(("partition:peer=0,for=4s",), 2, NETWORK),
    Part(("loss:amount=5%,for=3s",), 3, NETWORK),
    Part(("delay:amount=20ms,for=3s",), 3, NETWORK),
)

NEVER = {
    "flip_bit:where=gradient": "only a leaf that is computed twice by chance tells of it, so that "
    "it would end with other bits",
}
"""What no campaign does, and why."""


def campaign_plan(
    num_faults: int, seed: int, *, every_steps: int, lacking: frozenset[str] = frozenset()
) -> FaultPlan:
    """Return a plan.

    Args:
        num_faults: How many faults.
        seed: Chooses their order, which overlap, and whom they hit.
        every_steps: Steps from one to the next, if everybody is back by then.
        lacking: What this machine does not have; what needs it is left out.
    """
    parts = [part for part in MIX if part.needs not in lacking]
    specs: list[str] = []
    for number, part in enumerate(_dealt(parts, seed, num_faults)):
        first = len(specs)
        overlaps = number > 0 and _draw(f"{seed}/overlap/{number}") < 1 / _OVERLAPS_ONE_IN
        beat = first * every_steps + (_TOGETHER_STEPS if overlaps else every_steps)
        for place, spec in enumerate(part.specs):
            said = f"after={beat + place * _TOGETHER_STEPS}steps"
            said += "" if overlaps or place else ",all_back=true"
            specs.append(f"{spec}{',' if ':' in spec else ':'}{said}")
    return FaultPlan.parse(*specs[:num_faults], seed=seed)


def _dealt(parts: list[Part], seed: int, number: int) -> Iterator[Part]:
    """Return parts in an order that the seed chooses, each as often as its share."""
    turns = [
        ((turn + _draw(f"{seed}/{part.specs}/{turn}")) / part.share, part)
        for part in parts
        for turn in range(number)
    ]
    turns.sort(key=lambda each: each[0])
    return (part for _, part in turns[:number])


def _draw(what: str) -> float:
    """Return a number from 0 to below 1, the same one for the same words."""
    digest = hashlib.blake2b(what.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
