"""How a host's way to the switch is made slow: by the kernel where it can, by a relay elsewhere.

Owns the choice and the lines for ``tc`` and ``ip``.  Pure.  A relay sits between two TAP devices:

    host ── h1n0 ── h1n0q ── h1n0u ─(relay)─ h1n0t ── sw0
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from danaus.app.lab_plan import LabPlan, Line, Link, bridge_lines, switch_name

KINDS = ("netem", "tbf")
_NETEM_FRAMES = 10_000
_LEAST_BURST_BYTES = 16 * 1024
_BURST_S = 0.01


@dataclass(frozen=True)
class Shaping:
    """What makes a way slow.

    Args:
        qdisc: Arguments for ``tc`` after the device, at both ends; empty for none.
        relayed: Whether a relay does it.
    """

    qdisc: Line = ()
    relayed: bool = False


def shaping(link: Link, kernel: AbstractSet[str]) -> Shaping:
    """Choose what makes a way as slow as ``link``.

    Args:
        link: Its quality; loss is not looked at, the switch's rules see to it.
        kernel: Which of ``KINDS`` this machine's kernel has.
    """
    if not link.is_shaped:
        return Shaping()
    if "netem" in kernel:
        return Shaping(qdisc=("root", "netem", "limit", str(_NETEM_FRAMES), *_netem(link)))
    if not link.delay_s and "tbf" in kernel:
        bytes_per_s = link.rate_mbit * 1e6 / 8
        burst = max(_LEAST_BURST_BYTES, round(bytes_per_s * _BURST_S))
        rate = ("rate", _rate(link), "burst", str(burst), "latency", "400ms")
        return Shaping(qdisc=("root", "tbf", *rate))
    return Shaping(relayed=True)


def _netem(link: Link) -> Line:
    words: Line = ()
    if link.delay_s:
        words += ("delay", f"{round(link.delay_s * 1e6)}us")
    if link.jitter_s:
        words += (f"{round(link.jitter_s * 1e6)}us",)
    if link.rate_mbit:
        words += ("rate", _rate(link))
    return words


def _rate(link: Link) -> str:
    return f"{round(link.rate_mbit * 1e6)}bit"


def taps(plan: LabPlan, node: str, network: int) -> tuple[str, str]:
    """Return the names of a relay's two devices: the host's side, the switch's side."""
    port = plan.port_of(node, network)
    return f"{port}u", f"{port}t"


def relay_lines(plan: LabPlan, node: str, network: int) -> list[Line]:
    """Return what puts two devices for a relay into a host's way, in the switch's namespace."""
    port = plan.port_of(node, network)
    lines = bridge_lines(f"{port}q")
    masters = (f"{port}q", switch_name(network))
    for tap, master in zip(taps(plan, node, network), masters, strict=True):
        lines += [
            ("tuntap", "add", "mode", "tap", "name", tap),
            ("link", "set", tap, "addrgenmode", "none"),
            ("link", "set", tap, "master", master),
            ("link", "set", tap, "up"),
        ]
    return [*lines, ("link", "set", port, "master", f"{port}q")]


def straight_lines(plan: LabPlan, node: str, network: int) -> list[Line]:
    """Return what joins a host to the switch without a relay; some of it may be so already."""
    port = plan.port_of(node, network)
    near, far = taps(plan, node, network)
    gone: list[Line] = [("link", "del", each) for each in (f"{port}q", near, far)]
    return [*gone, ("link", "set", port, "master", switch_name(network))]


def relay_arguments(plan: LabPlan, node: str, network: int) -> tuple[str, ...]:
    """Return what a relay is told: its devices, delay, jitter and bytes per second."""
    link = plan.link(node)
    numbers = (link.delay_s, link.jitter_s, link.rate_mbit * 1e6 / 8)
    return (*taps(plan, node, network), *(repr(number) for number in numbers))


def relay_name(node: str, network: int) -> str:
    """Return a relay's name among the processes of the switch."""
    return f"relay-{node}-{network}"
