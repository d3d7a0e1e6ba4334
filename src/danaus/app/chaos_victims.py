"""The processes of a run as its folder names them: whom a fault from outside can hit.

Owns ``Victims``.  A pid alone may be another process by now, so each comes with its start time,
and only what is alive is returned.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from danaus.actor import procfs
from danaus.actor.pid_registry import PidRegistry
from danaus.app.chaos import Fleet
from danaus.app.chaos_fault import Fault
from danaus.app.events import CONTROLLER, SERVICE, FaultKind
from danaus.app.run_folder import RunFolder

_REGISTERED = {"host_agent": "agent", "nursery": "nursery"}
_OF_KIND = {
    FaultKind.KILL_COORDINATOR: "coordinator",
    FaultKind.KILL_CONTROLLER: "controller",
    FaultKind.KILL_NURSERY: "nursery",
    FaultKind.KILL_HOST_AGENT: "host_agent",
    FaultKind.KILL_HOST: "host",
}


@dataclass(frozen=True, slots=True)
class Victim:
    """One living process.

    Args:
        words: What it is, for a person.
        pid: Its process id.
        started: When it was started, as ``procfs`` has it.
        process_id: A worker's name in its job; empty for others.
    """

    words: str
    pid: int
    started: int
    process_id: str = ""

    @property
    def replica(self) -> str:
        """The replica that a worker belongs to; empty for others."""
        return self.process_id.split("/")[1] if self.process_id else ""

    @property
    def incarnation(self) -> int | None:
        """Of a worker; None for others."""
        return int(self.process_id.rpartition("#")[2]) if self.process_id else None

    @property
    def is_well(self) -> bool:
        """Tell whether it lives and is not stopped."""
        stat = procfs.read_stat(self.pid)
        return stat is not None and stat.started == self.started and stat.state not in "TZX"


class Elsewhere(Protocol):
    """Hosts of this machine that have process ids of their own."""

    def agents(self, host: int) -> Path:
        """Return the folder in which the agent of a host writes down its processes."""

    def first_pid(self, host: int) -> int | None:
        """Return the pid, here, of a host's first process; None while it is down."""


class Victims:
    """Find processes of a run.

    Args:
        folder: The run's.
        fleet: What the run has.
        elsewhere: Where hosts are that have pids of their own; None: on this machine, plainly.
    """

    def __init__(self, folder: RunFolder, fleet: Fleet, elsewhere: Elsewhere | None = None) -> None:
        self._folder, self._fleet, self._elsewhere = folder, fleet, elsewhere
        self._found: dict[tuple[int, int, int], int | None] = {}

    def of(self, fault: Fault) -> list[Victim]:
        """Return the living processes that a resolved fault hits; none if they are not there."""
        process = _OF_KIND.get(fault.kind, fault.victim)
        if process == "coordinator":
            return self._only(self.service())
        if process == "controller":
            return self._only(self.controller())
        if process == "worker" and fault.host is None:
            return self._only(self._worker(f"replica-{fault.replica}", fault.rank or 0))
        place = fault.host or 0
        on_host = list(self.on_host(place))
        if process in _REGISTERED:
            return [v for v in on_host if v.words == _words(_REGISTERED[process], place)]
        return [v for v in on_host if v.process_id or process == "host"]

    def target(self, fault: Fault) -> str:
        """Return what the journal calls the target of a resolved fault."""
        process = _OF_KIND.get(fault.kind, fault.victim)
        named = {"coordinator": SERVICE, "controller": CONTROLLER}
        if process in named:
            return named[process]
        return f"replica-{fault.replica}" if fault.host is None else f"host{fault.host}"

    def on_host(self, place: int) -> Iterator[Victim]:
        """Return the living processes of a host, its agent first."""
        registered = PidRegistry(self._agents(place)).read()
        adopted = self._folder.addresses().get("adopted", {})
        for each, (inside, started) in sorted(registered.items(), key=lambda item: "/" in item[0]):
            pid = self._pid_here(place, inside, started)
            if pid is not None and _lives(pid, started):
                now = adopted.get(each, each)  # a spare may have become a replica
                yield Victim(_words(now, place), pid, started, now if "/" in now else "")

    def _agents(self, place: int) -> Path:
        """Return the folder in which the agent of a host writes down its processes."""
        if self._elsewhere is not None:
            return self._elsewhere.agents(place)
        return self._folder.control / "agents" / f"host{place}"

    def _pid_here(self, place: int, pid: int, started: int) -> int | None:
        """Return a registered process's pid as it is seen from here.

        Who was not found has ended: it was registered while it lived.
        """
        if self._elsewhere is None:
            return pid
        key = place, pid, started
        if key not in self._found:
            first = self._elsewhere.first_pid(place)
            self._found[key] = None if first is None else procfs.pid_here(pid, first)
        return self._found[key]

    def service(self) -> Victim | None:
        """Return the quorum service, None while there is none."""
        known = self._folder.addresses()
        pid, started = known.get("quorum_pid"), known.get("quorum_started")
        if not isinstance(pid, int) or not isinstance(started, int) or not _lives(pid, started):
            return None
        return Victim(f"the {SERVICE}", pid, started)

    def lose_quorum(self) -> None:
        """Take away what the quorum service has saved, at once, as a disk that is lost does."""
        lost = self._folder.control / "quorum-lost"
        with contextlib.suppress(OSError):  # it has saved nothing yet
            self._folder.quorum.rename(lost)
        shutil.rmtree(lost, ignore_errors=True)

    def controller(self) -> Victim | None:
        """Return the process that holds the run's folder, None while none does."""
        lock = self._folder.control / "lock"
        try:
            pid = int(lock.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        stat = procfs.read_stat(pid)
        if stat is None or stat.is_zombie or not _has_open(pid, lock):
            return None
        return Victim(f"the {CONTROLLER}", pid, stat.started)

    @property
    def any_alive(self) -> bool:
        """Whether the run goes on: its controller lives, or a host of it that is here."""
        return self.controller() is not None or any(
            True for place in self._places for _ in self.on_host(place)
        )

    @property
    def all_well(self) -> bool:
        """Whether the service lives, and on each host of this machine its agent and nursery."""
        service = self.service()
        if service is None or not service.is_well:
            return False
        for place in self._places:
            if self._agents(place).is_dir():
                here = [v for v in self.on_host(place) if not v.process_id]
                if len(here) < len(_REGISTERED) or not all(v.is_well for v in here):
                    return False
        return True

    def _worker(self, replica_id: str, rank: int) -> Victim | None:
        """Return the newest living worker of a replica's rank, on whichever host."""
        found = [
            victim
            for place in self._anywhere()
            for victim in self.on_host(place)
            if victim.process_id.partition("/")[2].startswith(f"{replica_id}/{rank}#")
        ]
        return max(found, key=lambda v: v.incarnation or 0, default=None)

    def _anywhere(self) -> list[int]:
        """Return the hosts on which a replica may live: it may have moved to a spare's."""
        if self._elsewhere is not None:
            return list(self._places)
        folders = (self._folder.control / "agents").glob("host*")
        numbers = (each.name.removeprefix("host") for each in folders)
        return sorted({*self._places, *(int(each) for each in numbers if each.isdigit())})

    @property
    def _places(self) -> range:
        return range(self._fleet.num_hosts)

    def _only(self, victim: Victim | None) -> list[Victim]:
        return [] if victim is None else [victim]


def _words(name: str, place: int) -> str:
    return f"a worker of {name.split('/')[1]}" if "/" in name else f"the {name} of host{place}"


def _lives(pid: int, started: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.started == started and not stat.is_zombie


def _has_open(pid: int, path: Path) -> bool:
    """Tell whether a process has a file open: a pid in a file may be another process by now."""
    wanted = os.fspath(path.resolve())
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(_link_of(each) == wanted for each in descriptors)


def _link_of(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""
