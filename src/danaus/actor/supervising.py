"""Carries out what the supervision machine says, in one process.

On the connections' loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.hosting import Hosting
from danaus.actor.links import Parts
from danaus.actor.owned import OwnedMesh, OwnedProcs
from danaus.actor.ownership_record import OwnershipRecord
from danaus.actor.portable import packed_failure, unpacked
from danaus.actor.process_messages import ActorFailed, FailurePassedUp
from danaus.actor.supervision import SupervisionMachine
from danaus.actor.supervision_messages import (
    ActorKey,
    ActorLeaving,
    ActorRaised,
    Answered,
    AskOwner,
    CallFaultHook,
    CleanUp,
    EndMesh,
    Event,
    FailurePassed,
    Instruction,
    MeshEnded,
    MeshOwned,
    PassUp,
    ProcessName,
    StartAgain,
    StopAsked,
)

_log = logging.getLogger("danaus.actor")


class FaultHook(Protocol):
    """Called with a failure that nobody handled."""

    def __call__(self, failure: MeshFailure) -> None: ...


class Supervisor:
    """The machine and its shell.

    Args:
        hosting: The actors of this process.
        fault_hook: What to do about a failure that nobody handled.
        record: Where it is written down what is owned.
    """

    def __init__(self, hosting: Hosting, fault_hook: FaultHook, record: OwnershipRecord) -> None:
        self.machine = SupervisionMachine()
        self._hosting = hosting
        self._fault_hook = fault_hook
        self.record = record
        self._meshes: dict[str, OwnedMesh] = {}
        self._procs_of: dict[ProcessName, OwnedProcs] = {}
        self._root_left: Callable[[], None] | None = None

    def own(self, mesh: OwnedMesh, event: MeshOwned) -> None:
        """Take responsibility for a mesh that is about to be spawned."""
        self._meshes[mesh.mesh_id] = mesh
        mesh.on, mesh.event = event.on, event
        if isinstance(mesh, OwnedProcs):
            self._procs_of.update(dict.fromkeys(event.processes, mesh))
        self.record.owned(mesh, event)  # before anything of it is there
        self.handle(event)

    def procs_of(self, process: ProcessName) -> OwnedProcs | None:
        """Return the mesh, owned here, that a process belongs to."""
        return self._procs_of.get(process)

    def owned_procs(self) -> list[OwnedProcs]:
        """Return the process meshes that are owned here."""
        return [mesh for mesh in self._meshes.values() if isinstance(mesh, OwnedProcs)]

    def stop(self, mesh: OwnedMesh) -> None:
        """End a mesh; its ``ended`` is settled once nothing of it is left."""
        self.handle(StopAsked(mesh.mesh_id))

    def leave(self, then: Callable[[], None]) -> None:
        """End everything that the main program owns, then call ``then``."""
        self._root_left = then
        self.handle(ActorLeaving(None))

    def notice(self, message: ActorFailed | FailurePassedUp, parts: Parts) -> None:
        """Hear from an actor of a mesh owned here."""
        key = ActorKey(message.mesh_id, message.rank)
        if isinstance(message, ActorFailed):
            fault = unpacked(parts, Fault) or Fault("exception", "what it is cannot be read here")
            self.handle(ActorRaised(key, fault, message.fatal))
        elif (failure := unpacked(parts, MeshFailure)) is not None:
            self.handle(FailurePassed(key, failure))

    def handle(self, event: Event) -> None:
        """Feed the machine one event, carry out what it says."""
        for instruction in self.machine.handle(event):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case AskOwner(owner, failure):
                self._ask(owner, failure)
            case PassUp(actor, failure):
                cell = self._hosting.get(actor)
                if cell is not None:
                    message = FailurePassedUp(actor.mesh_id, actor.rank)
                    self._hosting.tell_owner(cell, message, packed_failure(failure))
            case CallFaultHook(failure):
                self._fault_hook(failure)
            case StartAgain():
                self._start_again(instruction)
            case EndMesh(mesh_id):
                mesh = self._meshes[mesh_id]
                mesh.end(lambda: self._mesh_ended(mesh))
            case CleanUp(None):
                then, self._root_left = self._root_left, None
                if then is not None:
                    then()
            case CleanUp(key) if key is not None:
                self._hosting.clean_up(key)

    def _start_again(self, plan: StartAgain) -> None:
        for mesh_id, ranks in plan.actors:
            self._write_budget(mesh_id)  # before what it allows is done
            name = self._meshes[mesh_id].name
            _log.info("%s: ranks %s begin again: %s", name, ranks, plan.reason)
        for mesh_id, ranks in plan.procs:
            procs = self._meshes[mesh_id]
            if isinstance(procs, OwnedProcs):
                self._procs_of.update(dict.fromkeys(procs.replace(ranks), procs))
                if procs.event is not None:
                    self.record.owned(procs, procs.event)
        if plan.after_s:
            asyncio.get_running_loop().call_later(plan.after_s, self._begin_again, plan)
        else:
            self._begin_again(plan)

    def _write_budget(self, mesh_id: str) -> None:
        budget = self.machine.budget_of(mesh_id)
        if budget is not None:
            self.record.used(mesh_id, budget.past, budget.total)

    def _begin_again(self, plan: StartAgain) -> None:
        for mesh_id, ranks in (*plan.procs, *plan.actors):
            mesh = self._meshes.get(mesh_id)
            if mesh is not None:
                mesh.start_again(ranks)

    def _ask(self, owner: ActorKey, failure: MeshFailure) -> None:
        cell = self._hosting.get(owner)
        if cell is None:
            self.handle(Answered(owner, handled=False))
        else:
            cell.supervise(
                failure, lambda handled, raised: self.handle(Answered(owner, handled, raised))
            )

    def _mesh_ended(self, mesh: OwnedMesh) -> None:
        # What lived on it has ended with it, as the machine knows too.
        on_it = [each for each in self._meshes.values() if each.on == mesh.mesh_id]
        for ended in (mesh, *on_it):
            self._meshes.pop(ended.mesh_id, None)
            self.record.ended(ended.mesh_id)
            if ended.end_error is not None:
                ended.ended.set_error(ended.end_error)
            ended.ended.set_value(None)
        if isinstance(mesh, OwnedProcs):
            for ref in mesh.refs:
                self._procs_of.pop(ProcessName(ref.job, ref.process_id), None)
        self.handle(MeshEnded(mesh.mesh_id))
