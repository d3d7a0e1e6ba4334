"""Writes down what this process owns in jobs whose controller may be started again (A-12).

Owns ``OwnershipRecord``, between supervision, which knows what is owned, and ``holdings_log``.
On the connections' loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from danaus.actor.holdings import (
    ActorsHeld,
    BudgetUsed,
    Entry,
    HeldProcess,
    HostHeld,
    HostLetGo,
    MeshLetGo,
    MeshNoted,
    ProcessBegan,
    ProcsHeld,
    WorkspaceHeld,
)
from danaus.actor.holdings_log import HoldingsLog
from danaus.actor.links import Parts
from danaus.actor.made_of import LINE_BYTES, pack_parts
from danaus.actor.owned import OwnedActors, OwnedMesh, OwnedProcs
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.core.extent import Extent, Point

_RETRY_S = 1.0


class OwnershipRecord:
    """What is owned, by job; a job without a log is not written down.

    Args:
        replaced: Called once a later controller has taken over a job, with words.
    """

    def __init__(self, replaced: Callable[[str], None]) -> None:
        self._replaced = replaced
        self._logs: dict[str, HoldingsLog] = {}
        self._job_of: dict[str, str] = {}  # by mesh
        self._not_laid_down: dict[str, tuple[OwnedActors, MeshOwned]] = {}  # by mesh
        self._retrying = False

    def keep(self, job: str, log: HoldingsLog) -> None:
        """Write down what is owned in a job from now on; from any thread."""
        self._logs[job] = log

    def forget(self, job: str) -> None:
        """Write down nothing of a job any more."""
        log = self._logs.pop(job, None)
        if log is not None:
            log.close()

    def lay_down(self, event: MeshOwned, parts: Parts) -> str:
        """Write what actors are made of to a file, if it is too much for a line.

        From any thread, best from none that others wait for: it may be much.

        Returns:
            The file's name; empty: it is in none.
        """
        job = self._job_of_all(event)
        log = self._logs.get(job) if job is not None else None
        if log is None or not _are_many(parts):
            return ""
        try:
            return log.made.lay_down(event.mesh_id, parts)
        except OSError:
            return ""  # is tried again

    def owned(self, mesh: OwnedMesh, event: MeshOwned) -> None:
        """A mesh is about to be spawned, or was adopted."""
        job = self._job_of_all(event)
        if job is None:
            return
        extent, owner = _extent_of(event), str(event.owner or "")
        self._job_of[mesh.mesh_id] = job
        if isinstance(mesh, OwnedProcs):
            held = tuple(HeldProcess(ref.process_id, ref.agent_address) for ref in mesh.refs)
            facts = (mesh.mesh_id, mesh.name, owner, extent.axes, extent.sizes)
            self._write(job, ProcsHeld(*facts, held, msgspec.msgpack.encode(mesh.terms)))
        elif isinstance(mesh, OwnedActors) and event.on is not None:
            facts = (mesh.mesh_id, mesh.name, owner, extent.axes, extent.sizes)
            made = (_packed(mesh.made_of), mesh.made_in)
            if _are_many(mesh.made_of) and not mesh.made_in:
                self._not_laid_down[mesh.mesh_id] = mesh, event
                self._retry_later()
            self._write(job, ActorsHeld(*facts, event.on, event.restart, *made))

    def began(self, process: ProcessName, pid: int) -> None:
        """A process was forked."""
        log = self._logs.get(process.job)
        if log is not None and log.state.pids.get(process.process_id) != pid:
            self._write(process.job, ProcessBegan(process.process_id, pid))

    def ended(self, mesh_id: str) -> None:
        """A mesh is no more."""
        self._not_laid_down.pop(mesh_id, None)
        job = self._job_of.pop(mesh_id, None)
        if job is not None:
            self._write(job, MeshLetGo(mesh_id))

    def noted(self, mesh_id: str, notes: dict[str, str]) -> None:
        """The owner of a mesh wants to know something again."""
        job = self._job_of.get(mesh_id)
        if job is not None:
            self._write(job, MeshNoted(mesh_id, notes))

    def used(self, mesh_id: str, past: tuple[float, ...], total: int) -> None:
        """A mesh's policy had something started again."""
        job = self._job_of.get(mesh_id)
        if job is not None:
            self._write(job, BudgetUsed(mesh_id, past, total))

    def at_once(self, job: str, entry: BudgetUsed | WorkspaceHeld) -> None:
        """Something is on the disk when this returns; from any thread."""
        log = self._logs.get(job)
        if log is not None:
            log.record(entry)

    def look(self, job: str) -> None:
        """See whether what was written from another thread could be written."""
        log = self._logs.get(job)
        if log is not None:
            self._look(log)

    def host(self, job: str, entry: HostHeld | HostLetGo) -> None:
        """A host works for a job, or does no more."""
        self._write(job, entry)

    def _write(self, job: str, entry: Entry) -> None:
        log = self._logs.get(job)
        if log is None:
            return
        log.record(entry)
        self._look(log)

    def _look(self, log: HoldingsLog) -> None:
        if log.replaced:
            self._replaced(f"{log.path} is written by a later one")
        if log.trouble:
            self._retry_later()

    def _job_of_all(self, event: MeshOwned) -> str | None:
        """Return the job that is written down in which all processes of a mesh are."""
        jobs = {process.job for process in event.processes} & self._logs.keys()
        return jobs.pop() if len(jobs) == 1 else None  # actors of this very process have none

    def _retry_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            asyncio.get_running_loop().call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        again, self._not_laid_down = self._not_laid_down, {}
        for mesh, event in again.values():
            mesh.made_in = self.lay_down(event, mesh.made_of)
            if mesh.made_in:
                self.owned(mesh, event)
            elif self._job_of_all(event) is not None:
                self._not_laid_down[mesh.mesh_id] = mesh, event
                self._retry_later()
        for log in list(self._logs.values()):
            log.retry()
            self._look(log)


def _packed(parts: Parts) -> bytes:
    """Return what actors are made of as one; nothing where that is too much for a line."""
    return pack_parts(parts) if parts and not _are_many(parts) else b""


def _are_many(parts: Parts) -> bool:
    return sum(map(len, parts)) > LINE_BYTES


def _extent_of(event: MeshOwned) -> Extent:
    first = event.points[0]
    return first.extent if isinstance(first, Point) else Extent((), ())
