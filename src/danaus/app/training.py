"""What a worker process does: one rank of one replica trains until the run is done.

Owns how a trainer, a participant and the run folder's files come together in a worker process.  It
may lead several lives, one under each name that it bears: when its replica loses another rank, it
keeps its state, gives its name up, and goes on under the replica's next incarnation (H-3).
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path

from danaus.actor.contexts import ProcessInfo
from danaus.actor.process_runtime import context
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_inside import Inside
from danaus.app.orders import Orders
from danaus.app.recorder import Recorder
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import WorkerResult
from danaus.app.shards import Shards
from danaus.app.worker import WorkerJob
from danaus.core.clock import time_of_day
from danaus.core.errors import ConfigError, ExchangeAborted, InternalError, PeerLost
from danaus.ft.holding import Past
from danaus.ft.ledger import Ledger, Opened
from danaus.ft.participant import Participant
from danaus.ft.place import Place
from danaus.ft.step_plan import StepPlan
from danaus.platform.choice import Choice
from danaus.quorum.messages import MemberId
from danaus.train.replica import ReplicaWork
from danaus.wire.address import Address
from danaus.wire.position import Phase


class RankTraining:
    """The training of one rank of one replica.

    Args:
        job: What the replica is told.
        choice: What it computes on.
    """

    def __init__(self, job: WorkerJob, choice: Choice) -> None:
        self._job, self._choice = job, choice
        self._folder = RunFolder(Path(job.run_dir))
        self._open = contextlib.ExitStack()
        self._work: ReplicaWork | None = None
        self._shards: Shards | None = None
        self._orders = Orders()
        self._formerly: tuple[MemberId, ...] = ()
        self._inside: Inside | None = None
        self._asked_to_leave: Callable[[str], None] | None = None

    def prepare(self) -> None:
        """Meet the other ranks and build what is trained."""
        job = self._job
        if job.niceness:
            os.nice(job.niceness)
        self._choice.platform.pin(job.train.platform)
        place = self._place()
        self._shards = shards = Shards(place, context().proc.sockets, context().proc.position)
        self._open.enter_context(shards)
        self._work = ReplicaWork.build(
            job.train, place, shards=shards.place, folder=self._folder.checkpoints
        )
        self._inside = Inside(self._work)

    def adopt(self, job: WorkerJob) -> None:
        """Be another replica, which is built the same: only its name differs (H-4)."""
        if self._work is None:
            raise InternalError("P-6", "a spare was used before it was prepared")
        self._job = job
        self._work.place = self._place()

    def train(self) -> WorkerResult:
        """Train until every member has committed the run's last step."""
        with self._open, contextlib.closing(self._orders):
            if self._work is None or self._inside is None:
                raise InternalError("P-6", "training was begun before it was prepared")
            past: Past | None = None
            while True:
                ended = self._live(self._work, self._inside, past)
                if isinstance(ended, WorkerResult):
                    return ended
                past = ended
                self._begin_again(self._work, self._inside)

    def rejoin(self, job: WorkerJob) -> None:
        """Have the training go on under the name that ``job`` gives it; from any thread.

        Raises:
            DeadlinePassed: It does not leave what it is at.
        """
        self._orders.give(job)

    def _begin_again(self, work: ReplicaWork, inside: Inside) -> None:
        """Meet the ranks of the replica's next incarnation, the state still in memory.

        Whoever waits for an incarnation that comes to nothing goes on to the next that it is told.

        Raises:
            DeadlinePassed: Nobody says which incarnation that is.
            PeerLost: They did not all come.
        """
        shards, proc = self._shards, context().proc
        if shards is None:
            raise InternalError("H-3", "a rank goes on that has no siblings")
        if proc.position is not None:
            proc.position.write(work.trainer.step, Phase.START, 0)
        shards.part()
        gc.collect()  # what a broken pass has left holds connections that others wait on
        self._formerly = (*self._formerly, work.place.member)
        while True:
            self._job = self._orders.take()
            place = self._place()
            try:
                shards.meet(place, self._orders.live)
                break
            except PeerLost:
                if not self._orders.is_given:
                    raise
        work.begin_again(place)
        inside.watch_again()

    def leave(self, reason: str) -> None:
        """Have this process leave the run after the step in hand; from any thread.

        One that does not take part yet, and holds nothing, ends at once.

        Raises:
            SystemExit: It does.
        """
        if self._asked_to_leave is None:
            raise SystemExit(0)
        self._asked_to_leave(reason)

    def strike(self, fault: Fault) -> None:
        """Strike this process with a resolved fault; from any thread.

        Raises:
            ConfigError: Nothing is built yet.
        """
        if self._inside is None:
            raise ConfigError(f"{self._job.replica_id} cannot be struck yet", "it must train")
        self._inside.strike(fault)

    def _live(self, work: ReplicaWork, inside: Inside, past: Past | None) -> WorkerResult | Past:
        """Train under one name; return what is left of it if the replica loses another rank."""
        job, place, folder = self._job, work.place, self._folder
        steps = job.train.step
        bits, why = steps.bits_on(self._choice.platform.kind)
        elastic = job.num_replicas if steps.batch == "elastic" else 0
        plan = StepPlan(
            steps.num_steps,
            steps.num_leaves,
            steps.leaf_size,
            elastic,
            pace=job.pace,
            audit=job.audit,
            bits=bits,
        )
        opened = Opened(
            at=time_of_day(),
            member=place.member,
            identity=work.identity,
            samples_per_data_epoch=work.samples_per_data_epoch,
            environment={
                **self._choice.platform.environment(),
                "ranks of a replica": str(place.num_ranks),
                "order of sums": "one" if bits == "exact" else "who computed what",
            },
        )
        others = (*(make(work) for make in job.observers), inside)
        with (
            Ledger(folder.ledger_path(place.replica_id, place.rank), opened) as ledger,
            Recorder(
                place,
                work,
                folder,
                position=context().proc.position,
                repaired=job.lost_rank is not None,
                others=others,
            ) as recorder,
            Participant(place, work, plan, ledger=ledger, observer=recorder) as participant,
        ):
            room_bytes = participant.snapshot_room_bytes
            recorder.started(self._choice, (bits, why), room_bytes=room_bytes)
            if past is not None:
                participant.take_up(past)
            self._asked_to_leave = lambda why: _ask_to_leave(recorder, participant, why)
            try:
                self._orders.live(participant.disband if place.rejoins else None)
                _take_steps(participant, work)
            except (PeerLost, ExchangeAborted):
                if not place.rejoins:
                    raise
                return participant.renounce("it has lost a sibling")
            finally:
                self._asked_to_leave = None
                self._orders.live(None)
            ledger.sync()
            if participant.left:
                raise SystemExit(0)  # in good order, whoever is there to be told
            return WorkerResult(participant.committed_step, work.sha256())

    def _place(self) -> Place:
        job, proc = self._job, context().proc
        rank = proc.rank if job.rank is None else job.rank
        return Place(
            replica_id=job.replica_id,
            rank=rank,
            num_ranks=job.num_ranks,
            incarnation=job.incarnation,
            quorum_address=job.quorum_address,
            secret_path=str(self._folder.secret_path),
            data_address=_data_address(proc, f"{job.replica_id}-{rank}-{job.incarnation}"),
            agent_address=proc.agent_address,
            process_id=proc.process_id,
            rejoins=job.rejoins and job.num_ranks > 1,
            formerly=self._formerly,
        )


def _take_steps(participant: Participant, work: ReplicaWork) -> None:
    """Compute this rank's share of every step until there are no more."""
    for attempt in participant.attempts():
        for leaf in attempt.leaves():
            gradient = work.compute_leaf(attempt.step, leaf.microbatches)
            attempt.add(leaf, gradient, waited_s=work.take_waited_s())


def _ask_to_leave(recorder: Recorder, participant: Participant, why: str) -> None:
    recorder.leave_asked(why)
    participant.leave(why)


def _data_address(proc: ProcessInfo, name: str) -> str:
    """Return where peers reach this process: where its host agent is reached, they reach it."""
    agent = Address.parse(proc.agent_address)
    if agent.scheme == "unix":
        return str(Address.unix(f"{proc.sockets}/{name}"))
    return str(Address.tcp(agent.host, 0))
