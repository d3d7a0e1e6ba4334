"""What an earlier controller of a run has left running, for the one that goes on with it (A-12).

Owns ``Inheritance``: which mesh is which replica or spare, and what becomes of those that nobody
wants.  What lives is found out by ``actor.adopting``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from danaus.actor.adopting import LeftProcs, Takeover, note
from danaus.actor.contexts import incarnation_of
from danaus.actor.identity import host_name
from danaus.actor.mesh import HostMesh, ProcMesh
from danaus.actor.restart import Restart, RestartBudget
from danaus.app.run_result import WorkerResult
from danaus.app.worker import ReplicaWorker, WorkerJob
from danaus.core.errors import ConfigError, DeadlinePassed

_KILL_LIMIT_S = 5.0
_NAME, _INCARNATION, _RANKS = "name", "incarnation", "ranks"
_OF = "-of-"


@dataclass(frozen=True, slots=True)
class Inherited:
    """The processes of a replica or a spare, as they were left.

    Args:
        name: As in ``replica-1``.
        incarnation: Which.
        left: The processes.
        home: The host where they live, to start more there.
        apart: Processes that were started one by one in the place of lost ones (H-3).
        ranks: Which rank each process is that was of it, by name; empty: as in ``left``.
    """

    name: str
    incarnation: int
    left: LeftProcs
    home: HostMesh | None = None
    apart: tuple[LeftProcs, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_another_by_birth(self) -> bool:
        """Tell whether it was started as a spare and has become a replica."""
        return self.left.name != self.name and not self.left.name.endswith(_OF + self.name)

    @property
    def host(self) -> int:
        """Place of the host where it lives."""
        return host_place(self.left.held.processes[0].process_id)

    def adopt(self) -> dict[int, tuple[ProcMesh, int, Any]]:
        """Own its processes, and the worker in each, from now on.

        Returns:
            For each rank the mesh that its process is of, its place there, and its worker.

        Raises:
            ConfigError: No workers were made in them yet.
        """
        found: dict[int, tuple[ProcMesh, int, Any]] = {}
        for part in (self.left, *self.apart):
            procs = part.adopt()
            try:
                workers: Any = part.adopt_actors("worker", ReplicaWorker)
            except ConfigError:
                for each in (procs, *(each for each, _, _ in found.values())):
                    each.kill()
                raise
            for place, process_id in enumerate(procs.process_ids):
                rank = self.ranks.get(process_id) if self.ranks else place
                if rank is not None:
                    found[rank] = procs, place, workers.slice(ranks=place)
        return found


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
        newest = found[-1]
        parts = [each for each in found if each.incarnation == newest.incarnation and each.ranks]
        for each in parts or [newest]:
            self._unclaimed.remove(each)
        return _together(parts) if parts else newest

    def drop(self) -> None:
        """Forget all of it: nothing lives."""
        dropped, self._unclaimed = self._unclaimed, []
        if self._takeover is not None:
            for each in dropped:
                self._takeover.drop(each.left)

    async def end_unclaimed(self) -> None:
        """Kill what nobody has claimed, and wait until it is gone, within limits."""
        ended, self._unclaimed = self._unclaimed, []
        left = [part for each in ended for part in (each.left, *each.apart)]
        ending = [each.adopt().kill().as_asyncio() for each in left]
        if ending:
            await asyncio.wait(ending, timeout=_KILL_LIMIT_S)

    def budget(self, name: str, policy: Restart) -> RestartBudget:
        """Return a restart budget as an earlier controller has left it, kept for a later one."""
        if self._takeover is None:
            return RestartBudget(policy)
        return self._takeover.budget(name, policy)


async def unanswered(workers: Sequence[Any], limit_s: float) -> list[BaseException]:
    """Wait until each worker has answered; return what was raised instead.

    Args:
        workers: The actors.
        limit_s: How long that may take.
    """
    calls = [worker.here.call_one().as_asyncio() for worker in workers]
    try:
        async with asyncio.timeout(limit_s):
            said = await asyncio.gather(*calls, return_exceptions=True)
    except TimeoutError:
        return [DeadlinePassed("adopted workers to answer", limit_s)]
    return [each for each in said if isinstance(each, BaseException)]


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


def note_name(
    procs: ProcMesh, name: str, *, incarnation: int, ranks: Mapping[str, int] | None = None
) -> None:
    """Write down whose processes these are by now, for a later controller.

    Args:
        procs: The processes.
        name: Whose, as in ``replica-1``.
        incarnation: Of whoever they are.
        ranks: Which rank each is that is still of it; None: all, in their order.
    """
    noted = "" if ranks is None else json.dumps(dict(ranks))
    note(procs, **{_NAME: name, _INCARNATION: str(incarnation), _RANKS: noted})


def name_apart(rank: int, replica_id: str) -> str:
    """Return the name of the mesh of one process that is started in the place of a lost one."""
    return f"rank{rank}{_OF}{replica_id}"


def host_place(process_id: str) -> int:
    """Return the place of the host that a process id names: ``host2/...`` is 2."""
    return int(host_name(process_id).removeprefix("host"))


def _inherited(left: LeftProcs) -> Inherited:
    born = incarnation_of(left.held.processes[0].process_id)
    name = left.notes.get(_NAME, left.name)
    ranks = json.loads(left.notes.get(_RANKS) or "{}")
    return Inherited(name, int(left.notes.get(_INCARNATION, born)), left, ranks=ranks)


def _together(parts: list[Inherited]) -> Inherited:
    """Return a replica of which several meshes are left; that of the most processes is first."""
    first, *apart = sorted(parts, key=lambda each: -len(each.left.held.processes))
    ranks = {name: rank for each in parts for name, rank in each.ranks.items()}
    return replace(first, apart=tuple(each.left for each in apart), ranks=ranks)


def _newest_last(found: list[Inherited]) -> list[Inherited]:
    return sorted(found, key=lambda each: (bool(each.left.living), each.incarnation))
