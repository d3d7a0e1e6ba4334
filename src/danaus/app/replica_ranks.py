"""The processes of one replica, rank by rank.

Owns ``ReplicaRanks``: which process is which rank, under which incarnation.  They are started
together; one of them may be started anew later, and the others go on under its incarnation (H-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from danaus.actor.failure import MeshFailure
from danaus.actor.mesh import HostMesh, ProcMesh
from danaus.app.run_result import WorkerResult

_REMEMBERED = 64
"""So many processes may still be heard of: one that could not be killed ends late."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """One process, as one rank of a replica.

    Args:
        rank: Which.
        incarnation: Of the replica, as the process has it now.
        process_id: Its name in its job.
        procs: The mesh that it was started in.
        worker: Its actor.
    """

    rank: int
    incarnation: int
    process_id: str
    procs: ProcMesh
    worker: Any

    @property
    def pid(self) -> int:
        """Its process id; 0 while it is not known."""
        return self.procs.pids().get(self.process_id, 0)


class ReplicaRanks:
    """The living processes of one replica, and those that it had."""

    def __init__(self) -> None:
        self._now: dict[int, RankProcess] = {}
        self._known: dict[str, RankProcess] = {}
        self.home: HostMesh | None = None
        """The host on which they live."""

    def __bool__(self) -> bool:
        return bool(self._now)

    def __iter__(self) -> Iterator[RankProcess]:
        return iter([self._now[rank] for rank in sorted(self._now)])

    def __getitem__(self, rank: int) -> RankProcess:
        return self._now[rank]

    @property
    def process_ids(self) -> set[str]:
        """The names of all of them."""
        return {each.process_id for each in self._now.values()}

    @property
    def pids(self) -> tuple[int, ...]:
        """Their process ids, by rank."""
        return tuple(self._now[rank].pid for rank in sorted(self._now))

    def begin(
        self, procs: ProcMesh, workers: Any, incarnation: int, *, home: HostMesh | None
    ) -> None:
        """All of them were started together."""
        self.home = home
        self._now = {
            rank: RankProcess(rank, incarnation, name, procs, workers and workers.slice(ranks=rank))
            for rank, name in enumerate(procs.process_ids)
        }
        self._remember()

    def go_on(
        self,
        found: Mapping[int, tuple[ProcMesh, int, Any]],
        incarnation: int,
        *,
        home: HostMesh | None,
    ) -> None:
        """They were started by an earlier controller, not all of them together.

        Args:
            found: For each rank the mesh of its process, its place there, and its worker.
            incarnation: Of the replica.
            home: The host on which they live.
        """
        self.home = home
        self._now = {
            rank: RankProcess(rank, incarnation, procs.process_ids[place], procs, worker)
            for rank, (procs, place, worker) in found.items()
        }
        self._remember()

    def replace(self, rank: int, procs: ProcMesh, workers: Any, *, incarnation: int) -> None:
        """One was started anew; the others go on under its incarnation."""
        (name,) = procs.process_ids
        lost = self._now[rank]
        self._now = {n: replace(each, incarnation=incarnation) for n, each in self._now.items()}
        self._now[rank] = RankProcess(rank, incarnation, name, procs, workers.slice(ranks=0))
        self._remember()
        if all(each.procs is not lost.procs for each in self._now.values()):
            lost.procs.kill()  # nothing of it runs; it need not be looked after any more

    def _remember(self) -> None:
        for each in self._now.values():
            self._known.pop(each.process_id, None)
            self._known[each.process_id] = each
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def hit_by(self, failure: MeshFailure) -> list[RankProcess]:
        """Return which processes of this replica a failure is about, of those that were started."""
        return [self._known[name] for name in failure.process_ids if name in self._known]

    def is_now(self, process: RankProcess) -> bool:
        """Tell whether a process is one of those that make up the replica."""
        return process.process_id in self.process_ids

    def take(self) -> list[ProcMesh]:
        """Return the meshes of all processes; there are none from here on."""
        meshes = {each.procs.mesh_id: each.procs for each in self._now.values()}
        self._now = {}
        return list(meshes.values())

    def train(self) -> dict[int, asyncio.Future[WorkerResult]]:
        """Have all ranks train; return what each comes to."""
        return {rank: self._now[rank].worker.train.call_one().as_asyncio() for rank in self._now}
