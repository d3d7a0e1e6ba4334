"""What an earlier controller of a run has left running, for the one that goes on with it (A-12).

Owns ``Inheritance``: which mesh is which replica or spare, and what becomes of those that nobody
wants.  What lives is found out by ``actor.adopting``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from danaus.actor.adopting import LeftProcs, Takeover, note
from danaus.actor.contexts import incarnation_of
from danaus.actor.mesh import HostMesh
from danaus.actor.proc_mesh import ProcMesh
from danaus.actor.restart import Restart, RestartBudget
from danaus.app.run_result import WorkerResult
from danaus.app.worker import ReplicaWorker, WorkerJob

_KILL_LIMIT_S = 5.0
_NAME, _INCARNATION = "name", "incarnation"


@dataclass(frozen=True, slots=True)
class Inherited:
    """The processes of a replica or a spare, as they were left.

    Args:
        name: As in ``replica-1``.
        incarnation: Which.
        left: The processes.
        home: The host where they live, to start more there.
    """

    name: str
    incarnation: int
    left: LeftProcs
    home: HostMesh | None = None

    @property
    def is_another_by_birth(self) -> bool:
        """Tell whether it was started as a spare and has become a replica."""
        return self.left.name != self.name

    @property
    def host(self) -> int:
        """Place of the host where it lives."""
        return host_place(self.left.held.processes[0].process_id)

    def adopt_workers(self) -> Any:
        """Own the worker in each process from now on; the processes were adopted before.

        Raises:
            ConfigError: No workers were made in them yet.
        """
        return self.left.adopt_actors("worker", ReplicaWorker)


class Inheritance:
    """All that was left.

    Args:
        takeover: This controller's turn; None: a run that ends with its controller leaves nothing.
    """

    def __init__(self, takeover: Takeover | None = None) -> None:
        self._takeover = takeover
        left = takeover.left() if takeover is not None else ()
        self._unclaimed = [_inherited(each) for each in left]

    @property
    def living(self) -> dict[str, int]:
        """The replicas and spares that live, at least in part, and their incarnation."""
        alive = [each for each in self._unclaimed if each.left.living]
        return {each.name: each.incarnation for each in _newest_last(alive)}

    @property
    def hosts(self) -> dict[str, int]:
        """On which host each lives, or did."""
        return {each.name: each.host for each in _newest_last(self._unclaimed)}

    def claim(self, name: str) -> Inherited | None:
        """Return what is left of a replica or a spare, once; None: nothing is.

        A replica of which several meshes are left, as an end that does not come leaves them, is
        the newest.
        """
        found = _newest_last([each for each in self._unclaimed if each.name == name])
        if not found:
            return None
        self._unclaimed.remove(found[-1])
        return found[-1]

    def drop(self) -> None:
        """Forget all of it: nothing lives."""
        dropped, self._unclaimed = self._unclaimed, []
        if self._takeover is not None:
            for each in dropped:
                self._takeover.drop(each.left)

    async def end_unclaimed(self) -> None:
        """Kill what nobody has claimed, and wait until it is gone, within limits."""
        ended, self._unclaimed = self._unclaimed, []
        ending = [each.left.adopt().kill().as_asyncio() for each in ended]
        if ending:
            await asyncio.wait(ending, timeout=_KILL_LIMIT_S)

    def budget(self, name: str, policy: Restart) -> RestartBudget:
        """Return a restart budget as an earlier controller has left it, kept for a later one."""
        if self._takeover is None:
            return RestartBudget(policy)
        return self._takeover.budget(name, policy)


async def train_on(worker: Any, become: WorkerJob | None) -> WorkerResult:
    """Wait for the training of one worker, begin it if the controller before did not come to that.

    Args:
        worker: The actor.
        become: What it is told first, where it was started as a spare; None: it was not.
    """
    begun: WorkerResult | None = await worker.join.call_one()
    if begun is not None:
        return begun
    await worker.prepare.call_one()
    if become is not None:
        await worker.adopt.call_one(become)
    result: WorkerResult = await worker.train.call_one()
    return result


def note_name(procs: ProcMesh, name: str, *, incarnation: int) -> None:
    """Write down whose processes these are by now, for a later controller."""
    note(procs, **{_NAME: name, _INCARNATION: str(incarnation)})


def host_place(process_id: str) -> int:
    """Return the place of the host that a process id names: ``host2/...`` is 2."""
    return int(process_id.partition("/")[0].removeprefix("host"))


def _inherited(left: LeftProcs) -> Inherited:
    born = incarnation_of(left.held.processes[0].process_id)
    name = left.notes.get(_NAME, left.name)
    return Inherited(name, int(left.notes.get(_INCARNATION, born)), left)


def _newest_last(found: list[Inherited]) -> list[Inherited]:
    return sorted(found, key=lambda each: (bool(each.left.living), each.incarnation))
