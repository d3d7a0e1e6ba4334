"""What the processes of a run use while it goes on: memory, descriptors, threads, processor time.

Owns ``Usage`` and ``UsageWatch``.  A kind of process is told of by the one that lived through most
faults: a leak shows there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from danaus.app.chaos_victims import Victim, Victims
from danaus.core.proc_root import ROOT, stat_fields

_SETTLED_S = 3.0
"""A process is first looked at when it is so old: until then it loads what it needs."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at one process.

    Args:
        rss_bytes: Memory that it has.
        num_files: Descriptors.
        num_threads: Threads.
        cpu_s: Processor time that it has used.
    """

    rss_bytes: int
    num_files: int
    num_threads: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Life:
    """What one process used, from when it had settled to when it was last seen.

    Args:
        kind: Of process.
        lived_s: Between the two looks, in seconds.
        num_faults: Faults that the run was struck by meanwhile.
        first: The first look.
        last: The last one.
    """

    kind: str
    lived_s: float
    num_faults: int
    first: Usage
    last: Usage

    @property
    def cpu_share(self) -> float:
        """How much of a processor it used."""
        return (self.last.cpu_s - self.first.cpu_s) / self.lived_s if self.lived_s else 0.0


class UsageWatch:
    """Look at the processes of a run again and again.

    Args:
        victims: Finds them.
        hosts: The run's hosts, by place.
    """

    def __init__(self, victims: Victims, hosts: Iterable[int]) -> None:
        self._victims, self._hosts = victims, tuple(hosts)
        self._born: dict[tuple[int, int], float] = {}
        self._first: dict[tuple[int, int], tuple[float, int, Usage]] = {}
        self._lives: dict[tuple[int, int], Life] = {}

    def look(self, now_s: float, num_faults: int) -> None:
        """Look once.

        Args:
            now_s: The time.
            num_faults: Faults struck so far.
        """
        for kind, victim in self._living():
            key = (victim.pid, victim.started)
            if now_s - self._born.setdefault(key, now_s) < _SETTLED_S:
                continue
            used = usage(victim.pid)
            if used is None:
                continue
            began_s, before, first = self._first.setdefault(key, (now_s, num_faults, used))
            self._lives[key] = Life(kind, now_s - began_s, num_faults - before, first, used)

    def _living(self) -> Iterator[tuple[str, Victim]]:
        for kind, victim in (
            ("controller", self._victims.controller()),
            ("quorum service", self._victims.service()),
        ):
            if victim is not None:
                yield kind, victim
        for host in self._hosts:
            for victim in self._victims.on_host(host):
                words = victim.words.removeprefix("the ").partition(" of ")[0]
                yield "worker" if victim.process_id else words, victim

    def longest(self) -> list[Life]:
        """Return of each kind of process the life that most faults fell into."""
        kinds = dict.fromkeys(life.kind for life in self._lives.values())
        return [
            max((life for life in self._lives.values() if life.kind == kind), key=_lived)
            for kind in kinds
        ]


def _lived(life: Life) -> tuple[int, float]:
    return life.num_faults, life.lived_s


def usage(pid: int) -> Usage | None:
    """Return what a process uses, None if it is gone."""
    try:
        fields = stat_fields(pid)
        num_files = len(os.listdir(ROOT / str(pid) / "fd"))
    except OSError:
        return None
    utime, stime, num_threads, rss_pages = (int(fields[n]) for n in (11, 12, 17, 21))
    return Usage(
        rss_bytes=rss_pages * os.sysconf("SC_PAGE_SIZE"),
        num_files=num_files,
        num_threads=num_threads,
        cpu_s=(utime + stime) / _TICKS_PER_S,
    )
