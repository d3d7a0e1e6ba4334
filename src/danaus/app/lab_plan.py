"""What a lab is made of: its hosts, their names and addresses, and the lines that join them.

Owns ``LabPlan`` and the lines for ``ip`` that follow from it.  Pure: nothing here is carried out.
What is cut or slowed is in ``lab_rules`` and ``lab_links``.

    the controller (this machine)     host1             host2
      dn<number>n0                      eth0              eth0
           │                             │                 │
         h0n0 ───────── sw0 ─────────── h1n0 ... ───────── h2n0     the switch

A second network is the same again, ``eth1`` and ``sw1``.  The switch is a namespace of its own so
that no firewall of this machine sees the lab's frames, and so that all of it goes with one process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from danaus.core.errors import ConfigError

CONTROLLER = "controller"
SWITCH = "switch"
MAX_HOSTS = 200
MAX_NETWORKS = 2
NUM_LABS = 250
_FIRST_HOST = 10
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")

Line = tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """How good the way between a host and the switch is, in each direction.

    Args:
        delay_s: What a frame waits, in seconds, each way: a round trip takes twice as much more.
        jitter_s: By how much that varies, up and down, in seconds.  A relay keeps the order of
            frames; the kernel's netem may turn some round.
        loss: Share of the frames that are lost, 0 to 1.  Without a relay a frame may carry up to
            64 KiB of a stream: there is no wire that would cut it into pieces.
        rate_mbit: Megabits per second, 0 for no limit.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate_mbit: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.loss <= 1.0:
            raise ConfigError(f"a loss of {self.loss}", "a share between 0 and 1")
        for what, value in (
            ("delay", self.delay_s),
            ("jitter", self.jitter_s),
            ("rate", self.rate_mbit),
        ):
            if not 0.0 <= value < math.inf:
                raise ConfigError(f"a {what} of {value}", "a number that is 0 or more")
        if self.jitter_s > self.delay_s:
            raise ConfigError(
                f"a jitter of {1000 * self.jitter_s:g} ms", "no more than the delay that it varies"
            )

    @property
    def is_shaped(self) -> bool:
        """Tell whether frames wait for anything."""
        return bool(self.delay_s or self.rate_mbit)

    def __str__(self) -> str:
        words = [f"{1000 * self.delay_s:g} ms"] if self.delay_s else []
        words += [f"± {1000 * self.jitter_s:g} ms"] if self.jitter_s else []
        words += [f"{100 * self.loss:g} % lost"] if self.loss else []
        words += [f"{self.rate_mbit:g} Mbit/s"] if self.rate_mbit else []
        return " ".join(words)


@dataclass(frozen=True)
class LabPlan:
    """A lab as it shall be.

    Args:
        name: Its name.
        number: Which addresses are its own, 1 to 250; no two labs of a machine share one.
        num_hosts: How many hosts.
        num_networks: How many networks join them, 1 or 2.
        port: Where the agent of each host listens.
        ipv6: Whether agents listen on the IPv6 address; hosts have both.
        cuts: Who does not reach whom: (from, to).
        links: The quality of each host's way to the switch, where it is not perfect.
    """

    name: str
    number: int = 1
    num_hosts: int = 4
    num_networks: int = 1
    port: int = 7200
    ipv6: bool = False
    cuts: tuple[tuple[str, str], ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        _within("hosts", self.num_hosts, MAX_HOSTS)
        _within("networks", self.num_networks, MAX_NETWORKS)
        _within("port", self.port, 65535)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names: host1, host2, ..."""
        return tuple(f"host{index}" for index in range(1, self.num_hosts + 1))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Everybody with an address: the controller, then the hosts."""
        return (CONTROLLER, *self.hosts)

    @property
    def networks(self) -> range:
        """The networks, by number."""
        return range(self.num_networks)

    def index(self, node: str) -> int:
        """Return a node's number: 0 is the controller, 1 is host1.

        Raises:
            ConfigError: There is none of that name.
        """
        if node not in self.nodes:
            there = f"{CONTROLLER}, host1 to host{self.num_hosts}"
            raise ConfigError(f"the lab has no {node!r}", to_do=f"there is {there}")
        return self.nodes.index(node)

    def ipv4(self, node: str, network: int = 0) -> str:
        """Return a node's IPv4 address (of the range set aside for test labs, RFC 2544)."""
        index = self.index(node)
        return f"198.{18 + network}.{self.number}.{index + _FIRST_HOST if index else 1}"

    def ipv6_of(self, node: str, network: int = 0) -> str:
        """Return a node's IPv6 address (unique local, RFC 4193)."""
        index = self.index(node)
        last = index + _FIRST_HOST if index else 1
        return str(ip_address(f"fdda:{self.number:x}:{network:x}::{last:x}"))

    def mac(self, node: str, network: int = 0) -> str:
        """Return a node's hardware address: a host has it again after a crash."""
        return f"02:da:00:{self.number:02x}:{network:02x}:{self.index(node):02x}"

    def listening(self, host: str) -> str:
        """Return the address of a host's agent, in danaus' spelling."""
        address = f"[{self.ipv6_of(host)}]" if self.ipv6 else self.ipv4(host)
        return f"tcp:{address}:{self.port}"

    def port_of(self, node: str, network: int = 0) -> str:
        """Return the name of a node's port at the switch."""
        return f"h{self.index(node)}n{network}"

    def device_of(self, node: str, network: int = 0) -> str:
        """Return the name of a node's own end, in its own namespace."""
        return f"dn{self.number}n{network}" if node == CONTROLLER else f"eth{network}"

    def link(self, node: str) -> Link:
        """Return the quality of a node's way to the switch."""
        return self.links.get(node, Link())


def is_name(text: str) -> bool:
    """Tell whether a lab may be called so."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return the name of a lab: it stands in paths that are removed, and in lines for ``ip``.

    Raises:
        ConfigError: A lab cannot be called so.
    """
    if not is_name(name):
        raise ConfigError(
            f"a lab cannot be called {name!r}", "up to 31 of a-z, 0-9 and -, no - first"
        )
    return name


def _within(what: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ConfigError(f"{what} cannot be {value}", f"1 to {most}")


def switch_name(network: int) -> str:
    """Return the name of a network's bridge."""
    return f"sw{network}"


def switch_lines(plan: LabPlan) -> list[Line]:
    """Return what makes the bridges, in the switch's namespace."""
    lines: list[Line] = [("link", "set", "lo", "up")]
    for network in plan.networks:
        lines += bridge_lines(switch_name(network))
    return lines


def bridge_lines(bridge: str) -> list[Line]:
    """Return what makes one bridge that forwards at once and says nothing of its own."""
    return [
        ("link", "add", bridge, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0"),
        ("link", "set", bridge, "addrgenmode", "none"),
        ("link", "set", bridge, "up"),
    ]


def join_lines(plan: LabPlan, node: str, pid: int) -> list[Line]:
    """Return what joins a node to the switch, in the switch's namespace.

    Args:
        plan: The lab.
        node: Who is joined.
        pid: A process in that node's network namespace.
    """
    lines: list[Line] = []
    for network in plan.networks:
        port = plan.port_of(node, network)
        peer = ("peer", "name", plan.device_of(node, network), "address", plan.mac(node, network))
        lines += [
            ("link", "add", port, "type", "veth", *peer, "netns", str(pid)),
            ("link", "set", port, "addrgenmode", "none"),
            ("link", "set", port, "master", switch_name(network)),
            ("link", "set", port, "up"),
        ]
    return lines


def part_lines(plan: LabPlan, node: str) -> list[Line]:
    """Return what takes a node's cables out, both ends at once, in the switch's namespace."""
    return [("link", "del", plan.port_of(node, network)) for network in plan.networks]


def address_lines(plan: LabPlan, node: str, *, with_ipv6: bool) -> list[Line]:
    """Return what gives a node its addresses, in its own namespace."""
    lines: list[Line] = [] if node == CONTROLLER else [("link", "set", "lo", "up")]
    for network in plan.networks:
        device = plan.device_of(node, network)
        lines.append(("addr", "add", f"{plan.ipv4(node, network)}/24", "dev", device))
        if with_ipv6:
            # Nobody else can have it: no need to ask for a second.
            six = f"{plan.ipv6_of(node, network)}/64"
            lines.append(("addr", "add", six, "dev", device, "nodad"))
        lines.append(("link", "set", device, "up"))
        lines += _neighbour_lines(plan, node, network, with_ipv6=with_ipv6)
    return lines


def _neighbour_lines(plan: LabPlan, node: str, network: int, *, with_ipv6: bool) -> list[Line]:
    """Return what tells a node where all others are, so that nobody ever has to ask.

    The question and its answer go both ways: a cut one way would soon be one both ways.
    """
    where = ("dev", plan.device_of(node, network), "nud", "permanent")
    lines: list[Line] = []
    for other in plan.nodes:
        addresses = [plan.ipv4(other, network)]
        addresses += [plan.ipv6_of(other, network)] if with_ipv6 else []
        if other != node:
            mac = plan.mac(other, network)
            lines += [("neigh", "replace", each, "lladdr", mac, *where) for each in addresses]
    return lines


def hosts_file(plan: LabPlan) -> str:
    """Return what stands in ``/etc/hosts`` of every host."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for node in plan.nodes:
        lines += [f"{plan.ipv4(node)} {node}", f"{plan.ipv6_of(node)} {node}"]
    return "\n".join(lines) + "\n"


def filled(template: tuple[str, ...], facts: Mapping[str, str]) -> tuple[str, ...]:
    """Return a command with ``{name}`` replaced by each fact, and other braces as they are."""
    words = list(template)
    for name, value in facts.items():
        words = [word.replace(f"{{{name}}}", value) for word in words]
    return tuple(words)
