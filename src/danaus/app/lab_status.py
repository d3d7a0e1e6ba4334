"""How a lab is, as values and in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from danaus.app.lab_init import Known
from danaus.app.lab_plan import LabPlan


@dataclass(frozen=True)
class HostStatus:
    """How one host is.

    Args:
        name: Its name.
        addresses: Its addresses, a line per network.
        is_up: Whether it lives.
        agent: What its agent does, in words.
    """

    name: str
    addresses: tuple[str, ...]
    is_up: bool
    agent: str


@dataclass(frozen=True)
class LabStatus:
    """How a lab is.

    Args:
        plan: The lab as it shall be.
        hosts: Its hosts.
        problems: What is not as it should be, in words.
        dropped: Frames that the switch's rules have dropped since these last changed, by rule.
        secret: Where the hosts' secret is.
    """

    plan: LabPlan
    hosts: tuple[HostStatus, ...]
    problems: tuple[str, ...]
    dropped: Mapping[str, int]
    secret: str

    def lines(self) -> list[str]:
        """Return what a person is told."""
        plan = self.plan
        here = ", ".join(plan.ipv4(plan.nodes[0], network) for network in plan.networks)
        lines = [
            f"lab {plan.name}: {plan.num_hosts} hosts; the controller, this machine, has {here}"
        ]
        for host in self.hosts:
            state = host.agent if host.is_up else "down: danaus lab start brings it back"
            link = str(plan.link(host.name))
            words = [" ".join(host.addresses), state, *([f"link: {link}"] if link else [])]
            lines.append(f"  {host.name:<8} {'  '.join(words)}")
        for start, end in plan.cuts:
            count = self.dropped.get(f"cut {start} {end}", 0)
            lines.append(f"  cut      {start} does not reach {end} ({count} frames dropped)")
        for name, count in sorted(self.dropped.items()):
            if name.startswith("lost"):
                lines.append(f"  {name}: {count} frames")
        lines += [f"  problem  {problem}" for problem in self.problems]
        listening = ",".join(plan.listening(host.name) for host in self.hosts)
        return [*lines, f"  join     --hosts {listening} --secret {self.secret}"]


def agent_words(running: Mapping[str, Known]) -> str:
    """Say what became of a host's agent."""
    if "agent" not in running:
        return "up, no agent"
    ended = running["agent"].ended
    return f"up, its agent ended: {ended}" if ended else "up"


def relay_problems(wanted: Iterable[str], running: Mapping[str, Known]) -> tuple[str, ...]:
    """Say which relays are not there: nothing gets through, or all of it at full speed.

    Args:
        wanted: The relays that there shall be, by name.
        running: What the switch runs or ran.
    """
    to_do = "until danaus lab link is told again"
    problems = []
    for name in sorted(wanted):
        if name not in running:
            problems.append(f"{name} was never started: its link is not as it should be {to_do}")
        elif running[name].ended:
            problems.append(f"{name} ended by {running[name].ended}: nothing passes there {to_do}")
    return tuple(problems)
