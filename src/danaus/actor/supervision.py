"""Who owns what, who is told of a failure, and what ends before what (A-6, A-7).

Pure: ``SupervisionMachine.handle(event)`` returns instructions; ``supervising`` carries them out.
There is one machine in each process.  It knows the meshes that actors of this process (or its
main program, the *root*) own, and the actors that live here.  Where an actor's own owner lives
in another process, a failure that it does not handle leaves as ``PassUp``; one that reaches the
root goes to the fault hook.

Invariants:
    S-1: an owner is asked about one failure at a time, in the order in which they happened.
    S-2: a point of a mesh fails by the loss of its process once; a mesh that is being stopped
        does not fail.
    S-3: meshes that an actor owns have ended before it is asked to clean up.
    A-9: whoever is started again is not told of as failed, until the budget is used up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.restart import RestartBudget, RestartDecision
from danaus.actor.supervision_messages import (
    ActorGone,
    ActorHosted,
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
    Instructions,
    MeshEnded,
    MeshOwned,
    PassUp,
    ProcessesGone,
    ProcessName,
    StartAgain,
    StopAsked,
)

_REMEMBERED = 4096  # processes whose end is known

# -- state -------------------------------------------------------------------------------------


@dataclass
class _Mesh:
    spec: MeshOwned
    lost: set[int] = field(default_factory=set)
    stopping: bool = False
    budget: RestartBudget | None = None

    def living(self, processes: Collection[ProcessName]) -> tuple[int, ...]:
        """Return the ranks that live in one of these processes."""
        return tuple(
            rank
            for rank, process in enumerate(self.spec.processes)
            if process in processes and rank not in self.lost
        )

    def replace(self, processes: Collection[ProcessName]) -> None:
        """Have others take the place of these."""
        replaced = tuple(p.heir if p in processes else p for p in self.spec.processes)
        self.spec = replace(self.spec, processes=replaced)


@dataclass
class _Hosted:
    spec: ActorHosted
    leaving: bool = False
    failures: deque[MeshFailure] = field(default_factory=deque)


@dataclass
class _Plan:
    """What is started again after one event, and why other things are not."""

    actors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    again: set[ProcessName] = field(default_factory=set)
    why_not: dict[ProcessName, str] = field(default_factory=dict)
    after_s: float = 0.0
    reason: str = ""

    def add(self, mesh_id: str, decision: RestartDecision) -> None:
        self.actors[mesh_id] = decision.ranks
        self.after_s = max(self.after_s, decision.after_s)
        self.reason = decision.reason

    def instruction(self, procs: dict[str, tuple[int, ...]]) -> StartAgain:
        actors = tuple(self.actors.items())
        return StartAgain(tuple(procs.items()), actors, self.after_s, self.reason)


_NOTHING = _Plan()


class SupervisionMachine:
    """The ownership tree of one process, and where its failures go."""

    def __init__(self) -> None:
        self._meshes: dict[str, _Mesh] = {}
        self._hosted: dict[ActorKey, _Hosted] = {}
        self._gone: dict[ProcessName, Fault] = {}
        self._leaving_root = False

    def handle(self, event: Event) -> Instructions:
        """Take in one event; return what has to be done, in order."""
        return tuple(self._handle(event))

    def owned_by(self, owner: ActorKey | None) -> tuple[str, ...]:
        """Return the meshes that ``owner`` owns, the oldest first."""
        return tuple(k for k, mesh in self._meshes.items() if mesh.spec.owner == owner)

    def budget_of(self, mesh_id: str) -> RestartBudget | None:
        """Return how much a mesh's policy still allows; None: it has none."""
        mesh = self._meshes.get(mesh_id)
        return mesh.budget if mesh is not None else None

    def fault_of(self, process: ProcessName) -> Fault | None:
        """Return what ended a process, None if it is not known to have ended."""
        return self._gone.get(process)

    def _handle(self, event: Event) -> Iterator[Instruction]:
        match event:
            case MeshOwned():
                yield from self._mesh_owned(event)
            case ActorHosted():
                self._hosted[event.actor] = _Hosted(event)
            case ProcessesGone():
                yield from self._processes_gone(event)
            case ActorRaised():
                yield from self._actor_raised(event)
            case FailurePassed():
                yield from self._from_mesh(event.actor.mesh_id, event.failure)
            case Answered():
                yield from self._answered(event)
            case _:
                yield from self._handle_ending(event)

    def _handle_ending(self, event: Event) -> Iterator[Instruction]:
        match event:
            case StopAsked():
                yield from self._stop(event.mesh_id)
            case MeshEnded():
                yield from self._mesh_ended(event.mesh_id)
            case ActorLeaving():
                yield from self._leaving(event.actor)
            case ActorGone():
                yield from self._actor_gone(event.actor)

    # -- failures ------------------------------------------------------------------------------

    def _mesh_owned(self, event: MeshOwned) -> Iterator[Instruction]:
        restart, past = event.restart, event.past
        budget = RestartBudget(restart, past) if restart is not None else None
        self._meshes[event.mesh_id] = mesh = _Mesh(event, budget=budget)
        for process in dict.fromkeys(event.processes):
            if process in self._gone:
                yield from self._lose(mesh, (process,), self._gone[process], plan=_NOTHING)

    def _processes_gone(self, event: ProcessesGone) -> Iterator[Instruction]:
        news = tuple(p for p in event.processes if p not in self._gone)
        self._gone.update(dict.fromkeys(news, event.fault))
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        plan = self._plan(news, event.fault)
        for mesh in list(self._meshes.values()):
            yield from self._lose(mesh, news, event.fault, plan=plan)
        if plan.again:
            yield self._start_again(plan)

    def _lose(
        self, mesh: _Mesh, processes: tuple[ProcessName, ...], fault: Fault, *, plan: _Plan
    ) -> Iterator[Instruction]:
        spec = mesh.spec
        begins_again = spec.on is None or spec.mesh_id in plan.actors
        ranks = mesh.living([p for p in processes if not (begins_again and p in plan.again)])
        if not ranks:
            return
        mesh.lost.update(ranks)
        if mesh.stopping:
            return
        if self._told_below(spec):  # but for what begins again below: of that nobody is told
            ranks = tuple(rank for rank in ranks if spec.processes[rank] in plan.again)
        if ranks:
            why = next((plan.why_not[p] for p in processes if p in plan.why_not), "")
            yield from self._tell(spec.owner, _failure(spec, ranks, _with_reason(fault, why)))

    def _plan(self, news: tuple[ProcessName, ...], fault: Fault) -> _Plan:
        """Decide which actors, and with them which processes, are started again (A-9).

        Processes can be where they are owned here too, and their host lives.
        """
        plan = _Plan()
        for mesh in self._meshes.values():
            below = self._meshes.get(mesh.spec.on or "")
            ranks = mesh.living(news)
            if below is None or mesh.budget is None or not ranks:
                continue
            if mesh.stopping or below.stopping or fault.kind == "host_lost":
                continue
            decision = mesh.budget.decide(
                ranks, len(mesh.spec.points), fault.time_s, clean_exit=fault.exit_code == 0
            )
            failed = {mesh.spec.processes[rank] for rank in ranks}
            if decision.restart:
                plan.add(mesh.spec.mesh_id, decision)
                plan.again.update(failed)
            else:
                plan.why_not.update(dict.fromkeys(failed, decision.reason))
        return plan

    def _start_again(self, plan: _Plan) -> StartAgain:
        procs = {
            mesh.spec.mesh_id: mesh.living(plan.again)
            for mesh in self._meshes.values()
            if mesh.spec.on is None and mesh.living(plan.again)
        }
        for mesh in self._meshes.values():
            mesh.replace(plan.again)
        return plan.instruction(procs)

    def _told_below(self, spec: MeshOwned) -> bool:
        """Tell whether the loss of a process is told for the process mesh, to the same owner."""
        below = self._meshes.get(spec.on) if spec.on is not None else None
        return below is not None and below.spec.owner == spec.owner

    def _actor_raised(self, event: ActorRaised) -> Iterator[Instruction]:
        mesh = self._meshes.get(event.actor.mesh_id)
        if mesh is None or event.actor.rank in mesh.lost:
            return
        ranks, fault = (event.actor.rank,), event.fault
        if mesh.budget is not None and not mesh.stopping:
            decision = mesh.budget.decide(ranks, len(mesh.spec.points), fault.time_s)
            if decision.restart:
                plan = _Plan()
                plan.add(mesh.spec.mesh_id, decision)
                yield plan.instruction({})
                return
            fault = _with_reason(fault, decision.reason)
        if event.fatal:
            mesh.lost.update(ranks)
        if not mesh.stopping:
            yield from self._tell(mesh.spec.owner, _failure(mesh.spec, ranks, fault))

    def _from_mesh(self, mesh_id: str, failure: MeshFailure) -> Iterator[Instruction]:
        mesh = self._meshes.get(mesh_id)
        if mesh is None:
            yield CallFaultHook(failure)
        else:
            yield from self._tell(mesh.spec.owner, failure)

    def _tell(self, owner: ActorKey | None, failure: MeshFailure) -> Iterator[Instruction]:
        if owner is None:
            yield CallFaultHook(failure)
            return
        hosted = self._hosted.get(owner)
        if hosted is None or hosted.leaving:
            yield from self._up(owner, failure)
            return
        hosted.failures.append(failure)
        if len(hosted.failures) == 1:
            yield AskOwner(owner, failure)

    def _up(self, actor: ActorKey, failure: MeshFailure) -> Iterator[Instruction]:
        hosted = self._hosted.get(actor)
        if hosted is not None and hosted.spec.remote:
            yield PassUp(actor, failure)
        elif actor.mesh_id in self._meshes:
            yield from self._from_mesh(actor.mesh_id, failure)
        else:
            yield CallFaultHook(failure)

    def _answered(self, event: Answered) -> Iterator[Instruction]:
        hosted = self._hosted.get(event.owner)
        if hosted is None or not hosted.failures:
            return
        failure = hosted.failures.popleft()
        if event.raised is not None:
            yield from self._up(event.owner, _replaced(hosted.spec, event.raised, failure))
        elif not event.handled:
            yield from self._up(event.owner, failure)
        if hosted.failures:
            yield AskOwner(event.owner, hosted.failures[0])

    # -- endings -------------------------------------------------------------------------------

    def _stop(self, mesh_id: str) -> Iterator[Instruction]:
        mesh = self._meshes.get(mesh_id)
        if mesh is None or mesh.stopping:
            return
        for other in self._meshes.values():
            if other is mesh or other.spec.on == mesh_id:
                other.stopping = True
        yield EndMesh(mesh_id)

    def _mesh_ended(self, mesh_id: str) -> Iterator[Instruction]:
        mesh = self._meshes.pop(mesh_id, None)
        if mesh is None:
            return
        # What was on it may have other owners: they need not wait for it any more either.
        ended = [mesh, *(m for m in self._meshes.values() if m.spec.on == mesh_id)]
        for each in ended[1:]:
            del self._meshes[each.spec.mesh_id]
        for owner in dict.fromkeys(each.spec.owner for each in ended):
            yield from self._maybe_clean_up(owner)

    def _leaving(self, actor: ActorKey | None) -> Iterator[Instruction]:
        if actor is None:
            self._leaving_root = True
        elif actor in self._hosted and not self._hosted[actor].leaving:
            self._hosted[actor].leaving = True
        else:
            return
        for mesh_id in reversed(self.owned_by(actor)):
            if not self._told_below(self._meshes[mesh_id].spec):
                yield from self._stop(mesh_id)
        yield from self._maybe_clean_up(actor)

    def _maybe_clean_up(self, owner: ActorKey | None) -> Iterator[Instruction]:
        leaving = self._leaving_root if owner is None else self._is_leaving(owner)
        if leaving and not self.owned_by(owner):
            if owner is None:
                self._leaving_root = False
            yield CleanUp(owner)

    def _is_leaving(self, actor: ActorKey) -> bool:
        hosted = self._hosted.get(actor)
        return hosted is not None and hosted.leaving

    def _actor_gone(self, actor: ActorKey) -> Iterator[Instruction]:
        hosted = self._hosted.get(actor)
        if hosted is None:
            return
        waiting = list(hosted.failures)
        hosted.failures.clear()
        for failure in waiting:
            yield from self._up(actor, failure)
        del self._hosted[actor]


def _with_reason(fault: Fault, why_not: str) -> Fault:
    if not why_not:
        return fault
    return replace(fault, reason=f"{fault.reason}; not started again: {why_not}")


def _failure(spec: MeshOwned, ranks: tuple[int, ...], fault: Fault) -> MeshFailure:
    return MeshFailure(
        mesh=spec.name,
        points=tuple(spec.points[rank] for rank in ranks),
        kind=fault.kind,
        reason=fault.reason,
        exit_code=fault.exit_code,
        signal=fault.signal,
        exception=fault.exception,
        traceback=fault.traceback,
        log_tail=fault.log_tail,
        time_s=fault.time_s,
        process_ids=tuple(spec.processes[rank].process_id for rank in ranks),
        mesh_id=spec.mesh_id,
    )


def _replaced(owner: ActorHosted, raised: Fault, cause: MeshFailure) -> MeshFailure:
    return replace(
        cause,
        mesh=owner.name,
        points=(owner.point,),
        kind=raised.kind,
        reason=raised.reason,
        exit_code=None,
        signal=None,
        exception=raised.exception,
        traceback=raised.traceback,
        log_tail=(),
        time_s=raised.time_s,
        process_ids=(),
        mesh_id=owner.actor.mesh_id,
        cause=cause,
    )
