"""Which frames the lab's switch drops: cuts and loss, as rules for ``nft``.

Owns the text of the one table, and what its counters say.  Pure.  A rule stands where a frame
enters the switch, before it is forwarded: a cut one way leaves the other way alone, and neither end
is told anything.  A frame to all (broadcast, multicast) is to nobody in particular: a cut between
two lets it pass.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from danaus.app.lab_plan import LabPlan

_TABLE = "netdev lab"
_MILLION = 1_000_000


def ruleset(plan: LabPlan, present: Sequence[str]) -> str:
    """Return the whole table for ``nft -f``; it replaces the old one in one go.

    Args:
        plan: The lab, with its cuts and links.
        present: The nodes that have a port now.
    """
    # Declared first, so that it can be deleted whether it was there or not.
    lines = [f"table {_TABLE}", f"delete table {_TABLE}", f"table {_TABLE} {{"]
    for source in present:
        for network in plan.networks:
            port = plan.port_of(source, network)
            lines.append(f"  chain from_{port} {{")
            lines.append(f'    type filter hook ingress device "{port}" priority 0; policy accept;')
            lines += [f"    {rule}" for rule in _rules(plan, source, network)]
            lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _rules(plan: LabPlan, source: str, network: int) -> Iterator[str]:
    for start, end in plan.cuts:
        if start == source:
            to = f"ether daddr {plan.mac(end, network)}"
            yield f'{to} counter drop comment "cut {start} {end}"'
    if plan.link(source).loss:
        yield f'{_share(plan.link(source).loss)} counter drop comment "lost from {source}"'
    for end in plan.nodes:
        if end != source and plan.link(end).loss:
            to = f"ether daddr {plan.mac(end, network)} {_share(plan.link(end).loss)}"
            yield f'{to} counter drop comment "lost to {end}"'


def _share(loss: float) -> str:
    return f"numgen random mod {_MILLION} < {round(loss * _MILLION)}"


def dropped(listing: str) -> Counter[str]:
    """Return how many frames each kind of rule has dropped.

    Args:
        listing: What ``nft -j list table`` says.

    Returns:
        Frames by comment: ``cut host1 host2``, ``lost from host1``, ``lost to host1``.
    """
    counts: Counter[str] = Counter()
    for each in json.loads(listing)["nftables"]:
        rule = each.get("rule", {})
        for part in rule.get("expr", ()):
            if "counter" in part:
                counts[rule.get("comment", "")] += part["counter"]["packets"]
    return counts


LIST_COMMAND = ("nft", "-j", "list", "table", *_TABLE.split())
