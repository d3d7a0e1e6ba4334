"""The network of a run whose hosts are a lab's: what partitions, loss, delay and crashes act on.

Owns ``LabNetwork`` and how it is found, and what is said where there is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from danaus.app.chaos import FaultPlan
from danaus.app.lab import Lab
from danaus.app.lab_folder import LABS, labs_there
from danaus.app.lab_plan import LabPlan
from danaus.core.errors import AddressRefused, ConfigError
from danaus.wire.address import Address


class LabNetwork:
    """What can be done to the hosts of a lab (``chaos_strike.Network``).

    Args:
        lab: The lab.
        nodes: The lab's name of each of the run's hosts, by place.
    """

    def __init__(self, lab: Lab, nodes: Sequence[str]) -> None:
        self._lab, self._nodes = lab, tuple(nodes)

    def cut(self, host: int, peer: int | str | None, *, one_way: bool) -> None:
        """Let no frame pass between two hosts, or one and everybody; ``one_way``: from it."""
        self._lab.cut(self._nodes[host], self._peer(peer), one_way=one_way)

    def heal(self, host: int, peer: int | str | None) -> None:
        """Undo every cut between two hosts, or all of one."""
        self._lab.heal(self._nodes[host], self._peer(peer))

    def link(self, host: int, *, loss: float | None = None, delay_s: float | None = None) -> None:
        """Lose a share of a host's frames, or delay them; what is not named stays."""
        node = self._nodes[host]
        link = self._lab.plan.link(node)
        if loss is not None:
            link = dataclasses.replace(link, loss=loss)
        if delay_s is not None:
            link = dataclasses.replace(link, delay_s=delay_s, jitter_s=min(link.jitter_s, delay_s))
        self._lab.link(node, link)

    def agents(self, host: int) -> Path:
        """Return the folder in which the agent of a host writes down its processes."""
        return self._lab.run_dir(self._nodes[host]) / "agents" / f"host{host}"

    def first_pid(self, host: int) -> int | None:
        """Return the pid, here, of a host's first process; None while it is down."""
        return self._lab.pid(self._nodes[host])

    def crash(self, host: int) -> None:
        """End all processes of a host at once; to the others it falls silent."""
        self._lab.crash(self._nodes[host])

    def start(self, host: int) -> None:
        """Start a host that has crashed."""
        self._lab.start(self._nodes[host])

    def _peer(self, peer: int | str | None) -> str | None:
        return self._nodes[peer] if isinstance(peer, int) else peer


def lab_network(hosts: Sequence[str], labs: Path = LABS) -> LabNetwork | None:
    """Return the network of a run's hosts, None where they are no lab's of this machine.

    Args:
        hosts: Their addresses, by place; none: the run has no other hosts than this machine.
        labs: The folder of all labs.
    """
    for name in labs_there(labs) if hosts else ():
        lab = Lab(name, labs=labs)
        try:
            nodes = _nodes(lab.plan, hosts)
        except (ConfigError, PermissionError):
            continue  # one that is being built or taken down; or root's, and we are not
        if len(nodes) == len(hosts):
            return LabNetwork(lab, nodes)
    return None


def network_for(faults: FaultPlan, hosts: Sequence[str], labs: Path = LABS) -> LabNetwork | None:
    """Return the network of a run's hosts that these faults can harm; see ``lab_network``.

    Raises:
        ConfigError: One harms a network, and there is none that can be harmed.
    """
    network = lab_network(hosts, labs)
    harm = next((each for each in faults.faults if each.by == "network"), None)
    if network is None and harm is not None:
        raise ConfigError(
            f"fault {harm.kind.value!r}: the network of this run cannot be harmed",
            "it needs the hosts of a lab",
            "see danaus lab",
        )
    return network


def _nodes(plan: LabPlan, hosts: Sequence[str]) -> list[str]:
    """Return the lab's names of the hosts at these addresses, as far as they are its."""
    known = {
        address: node
        for node in plan.hosts
        for network in plan.networks
        for address in (plan.ipv4(node, network), plan.ipv6_of(node, network))
    }
    return [known[host] for text in hosts if (host := _host(text)) in known]


def _host(text: str) -> str:
    try:
        return Address.parse(text).host
    except AddressRefused:
        return ""
