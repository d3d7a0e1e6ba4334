"""Which CPUs and which memory each process of a host gets.

``places`` decides, from what the machine has and what is wanted; pure.  ``read_topology`` reads
what the machine has, ``bind_here`` binds the calling process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from danaus.core.errors import ConfigError

_NODES = Path("/sys/devices/system/node")
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261, "riscv64": 237}
_MPOL_BIND = 2
_MASK_WORDS = 16  # 1,024 nodes, the most that Linux knows
_WORDS = ("cpunodebind", "physcpubind", "cpus", "membind")


@dataclass(frozen=True)
class Topology:
    """CPUs that may be used, by NUMA node; nodes without any are left out."""

    nodes: Mapping[int, tuple[int, ...]]

    @property
    def cpus(self) -> tuple[int, ...]:
        """All of them, node by node."""
        return tuple(cpu for cpus in self.nodes.values() for cpu in cpus)


class Place(msgspec.Struct, frozen=True):
    """Where one process may run, and which nodes its memory comes from; empty: anywhere."""

    cpus: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()


class Binding(msgspec.Struct, frozen=True):
    """What is wanted for the processes of one host.

    ``how`` is ``none``, ``numa``, ``cpus`` or ``each``; then ``each`` has the words of numactl
    (``cpunodebind``, ``physcpubind`` or ``cpus``, ``membind``) for each process.
    """

    how: str = "none"
    each: tuple[dict[str, str], ...] = ()


def wanted_binding(proc_bind: str | Sequence[Mapping[str, str]] | None) -> Binding:
    """Return what a user's ``proc_bind`` means.

    Raises:
        ConfigError: It means nothing.
    """
    if proc_bind is None:
        return Binding()
    if isinstance(proc_bind, str):
        if proc_bind in ("none", "numa", "cpus"):
            return Binding(proc_bind)
        raise ConfigError(
            what=f"proc_bind {proc_bind!r}", needed="'numa', 'cpus', or numactl's words for each"
        )
    for words in proc_bind:
        unknown = sorted(set(words) - set(_WORDS))
        if unknown:
            raise ConfigError(what=f"proc_bind {unknown}", needed=f"some of {list(_WORDS)}")
        for text in words.values():
            parse_list(text)
    return Binding("each", tuple(dict(words) for words in proc_bind))


def places(topology: Topology, binding: Binding, num_procs: int) -> list[Place]:
    """Return the place of each process of a host, by its number there.

    ``numa`` gives each process one node, side by side where there are more processes than nodes,
    and its memory from there; ``cpus`` an equal share of all CPUs.

    Raises:
        ConfigError: The host does not have what is wanted.
    """
    match binding.how:
        case "numa":
            nodes = list(topology.nodes)
            mine = [nodes[rank * len(nodes) // num_procs] for rank in range(num_procs)]
            return [Place(topology.nodes[node], (node,)) for node in mine]
        case "cpus":
            return [Place(_share(topology.cpus, rank, num_procs)) for rank in range(num_procs)]
        case "each":
            if len(binding.each) != num_procs:
                raise ConfigError(
                    what=f"proc_bind for {len(binding.each)} processes",
                    needed=f"one for each of the {num_procs} on a host",
                )
            return [_place(topology, words) for words in binding.each]
    return [Place()] * num_procs


def _share(cpus: tuple[int, ...], rank: int, num_procs: int) -> tuple[int, ...]:
    first, end = (len(cpus) * at // num_procs for at in (rank, rank + 1))
    return cpus[first:end] or (cpus[rank % len(cpus)],)  # more processes than CPUs


def _place(topology: Topology, words: Mapping[str, str]) -> Place:
    nodes = parse_list(words.get("cpunodebind", ""))
    memory = parse_list(words.get("membind", ""))
    cpus = parse_list(words.get("physcpubind", words.get("cpus", "")))
    _has(tuple(topology.nodes), (*nodes, *memory), "NUMA node")
    _has(topology.cpus, cpus, "CPU")
    of_nodes = tuple(cpu for node in nodes for cpu in topology.nodes[node])
    return Place(tuple(cpu for cpu in cpus if not nodes or cpu in of_nodes) or of_nodes, memory)


def _has(there: tuple[int, ...], wanted: tuple[int, ...], what: str) -> None:
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise ConfigError(what=f"no {what} {missing[0]} to bind to", needed=f"one of {there}")


def parse_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a list as the kernel writes it: ``0-3,8``.

    Raises:
        ConfigError: It is none.
    """
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ConfigError(what=f"{text!r} is no list of numbers", needed="one as in 0-3,8")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def read_topology(folder: Path = _NODES) -> Topology:
    """Return the CPUs that this process may use; a machine that tells no nodes is one node."""
    allowed = set(range(os.cpu_count() or 1))
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    nodes: dict[int, tuple[int, ...]] = {}
    for path in folder.glob("node[0-9]*/cpulist"):
        try:
            cpus = tuple(cpu for cpu in parse_list(path.read_text()) if cpu in allowed)
        except OSError:
            continue
        if cpus:
            nodes[int(path.parent.name.removeprefix("node"))] = cpus
    return Topology(dict(sorted(nodes.items())) or {0: tuple(sorted(allowed))})


def bind_here(place: Place) -> None:
    """Bind this process, and all that it starts from now on.

    Raises:
        OSError: The kernel refuses.
    """
    if place.cpus:
        if not hasattr(os, "sched_setaffinity"):
            raise OSError(errno.ENOSYS, "this system binds no process to CPUs")
        os.sched_setaffinity(0, place.cpus)
    number = _SET_MEMPOLICY.get(platform.machine())
    if not place.memory_nodes or number is None:
        return
    mask = (ctypes.c_ulong * _MASK_WORDS)()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    for node in place.memory_nodes:
        mask[node // bits] |= 1 << (node % bits)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _MPOL_BIND, mask, ctypes.c_ulong(bits * _MASK_WORDS)) != 0:
        raise OSError(ctypes.get_errno(), f"cannot take memory from nodes {place.memory_nodes}")
