"""The shell of one member process: carries out what the step machine orders.

Owns the loop between ``ft.step`` (which decides), the quorum service, the group of members and
the ``Work`` that trains.  It decides nothing: each method carries out one instruction and
returns the event that answers it.  Everything runs on the thread that iterates ``attempts``;
the two callbacks of the quorum client only set flags and release that thread.

Invariants:
    T-1: the optimiser runs only where the machine ordered ``Apply``.
    Q-5: an abort releases this thread from whatever exchange it is in.
    Q-9: the fingerprint that rides on a vote is taken just before it, so that a bit that flipped
        during the step vetoes the gradient that it spoiled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

import msgspec

from danaus.core.errors import CheckpointDamaged, ConfigError
from danaus.ft import step_events as on
from danaus.ft.attempt import Attempt
from danaus.ft.course import lent_steps
from danaus.ft.crew import BROKEN, Crew
from danaus.ft.healing import Healer
from danaus.ft.holding import Past, State
from danaus.ft.ledger import Ledger
from danaus.ft.notices import Notices
from danaus.ft.observer import Moment, Observer
from danaus.ft.place import Place
from danaus.ft.scribe import Scribe
from danaus.ft.scrutiny import Scrutiny
from danaus.ft.step import StepMachine
from danaus.ft.step_events import Votes
from danaus.ft.step_plan import StepPlan
from danaus.ft.stopwatch import Stopwatch
from danaus.ft.work import Work
from danaus.quorum.candidates import parse_candidates
from danaus.quorum.client import QuorumClient
from danaus.quorum.messages import Announcement, Epoch, Renounce
from danaus.wire.address import Address, advertised
from danaus.wire.blocking import PeerListener
from danaus.wire.position import Phase
from danaus.wire.secret import Secret


class Participant:
    """Take part in a run: iterate ``attempts`` and compute the leaves that each one hands out.

    Args:
        place: Who this process is and whom it reaches.
        work: What is trained.
        plan: What a step is.
        ledger: Where each applied step is written (T-7).
        observer: Told of phases, moments and committed steps.
        make_crew: Makes what works with the members of a quorum.

    Example::

        with Participant(place, work, plan) as participant:
            for attempt in participant.attempts():
                for leaf in attempt.leaves():
                    attempt.add(leaf, gradient_of(attempt.step, leaf.microbatches))

    Raises (from ``attempts``):
        ConfigError: The loop's body left an attempt before its last leaf.
        NoQuorum: The service refuses; its words say what to do.
        Diverged: Replicas disagree after replaying (Q-9).
        StepImpossible: What the members compute is not fit to be applied, again and again.
        ShareUnfit: What this replica alone computes is not, or wrong; the others go on without it.
    """

    def __init__(
        self,
        place: Place,
        work: Work,
        plan: StepPlan,
        *,
        ledger: Ledger | None = None,
        observer: Observer | None = None,
        make_crew: Callable[..., Crew] = Crew,
    ) -> None:
        self._place, self._work, self._plan = place, work, plan
        self._observer = observer or Observer()
        self._spent = Stopwatch()
        self._scribe = Scribe(ledger, work, plan, spent=self._spent)
        self._num_tries = 0
        self._at, self.left = (0, Phase.START), ""
        secret = Secret.load(place.secret_path)
        self._listener = listener = PeerListener(Address.parse(place.data_address), secret)
        self._notices = Notices()
        aborted = self._notices.aborted
        self._healer = Healer(listener, secret, work, observer=self._observer, aborted=aborted)
        self._crew = make_crew(
            self._listener,
            secret,
            place.member,
            plan=plan,
            on_collective=self._collective,
            aborted=aborted,
        )
        self._notices.on_abort = self._abort
        self._machine = StepMachine(
            place.member,
            place.num_ranks,
            plan.num_steps,
            fingerprint=work.fingerprint(),
            restorable_step=work.restorable_step(),
            veto=plan.veto,
        )
        self._machine.state = State(plan.first_step, self._machine.state.fingerprint)
        service = parse_candidates(place.quorum_address)[0]  # who reaches it reaches this (W-4)
        self._client = QuorumClient(
            place.quorum_address,
            secret,
            place.seat(str(advertised(self._listener.address, service))),
            on_change_pending=self._notices.change_pending,
            on_abort=self._notices.abort_exchange,
        )
        self._scrutiny = Scrutiny(
            place.member,
            plan,
            tell=self._client.tell,
            agree=work.agree,
            observer=self._observer,
        )
        self._attempt: Attempt | None = None
        self._measures: tuple[float, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, stop serving and hang up; the service is not told to wait."""
        self._client.close()
        self._crew.close()
        self._healer.close()
        self._listener.close()

    def take_up(self, past: Past) -> None:
        """Begin with what this process held under a name that it gave up (H-3).

        What it reports of the state is what it finds in memory.
        """
        if past.state.fingerprint:
            state = msgspec.structs.replace(past.state, fingerprint=self._work.fingerprint())
            past = msgspec.structs.replace(past, state=state)
        self._machine.take_up(past)

    def disband(self, reason: str) -> None:
        """End ``attempts`` with ``ExchangeAborted``: the replica has lost a rank; from any thread.

        A collective among its ranks is not ended by this, but by that loss.
        """
        self._notices.disband(reason)
        self._abort(None, reason)
        self._client.disband(reason)

    def renounce(self, reason: str) -> Past:
        """Give this name up once ``attempts`` has ended by an error; return what is kept (H-3).

        Nothing is voted under it any more, and the service is told so; then ``close``.
        """
        past = self._machine.renounce()
        self._client.tell(Renounce(self._place.member, reason))
        return past

    def _abort(self, epoch: Epoch | None, reason: str) -> None:
        """Leave what this process is blocked in (Q-5); from any thread."""
        self._crew.abort(epoch, reason)
        self._healer.abort(epoch, reason)

    # -- the face ---------------------------------------------------------------------------

    @property
    def committed_step(self) -> int:
        """Steps that are applied."""
        return self._machine.state.step

    @property
    def replica_ids(self) -> tuple[str, ...]:
        """The replicas of the standing quorum, in the order of their ranks."""
        return self._crew.replica_ids

    @property
    def snapshot_room_bytes(self) -> int:
        """Memory that snapshots for learners may take; beyond it a donor pauses (H-2)."""
        return self._healer.room_bytes

    def leave(self, reason: str) -> None:
        """Have ``attempts`` end after the step in hand, and ``left`` say why; from any thread."""
        self._client.leave(reason)

    def attempts(self) -> Iterator[Attempt]:
        """Hand out tries of steps until the run is done, or this process has left it.

        After the body of the loop has computed its leaves, the step is reduced, voted and applied
        or discarded; a discarded step comes again, with the same samples.
        """
        todo = deque(self._machine.handle(on.Started()))
        while todo:
            order = todo.popleft()
            if isinstance(order, on.Finish):
                self._finish(order)
                return
            if isinstance(order, on.Compute):
                yield self._begin(order)
                event: on.Event | None = self._computed(order)
            else:
                event = _CARRY_OUT[type(order)](self, order)
            if event is not None:
                todo.extend(self._handle(event))

    def _handle(self, event: on.Event) -> tuple[on.Instruction, ...]:
        known = self._notices.take_change(self._machine.epoch)
        orders = self._machine.handle(known) if known else ()
        return (*orders, *self._machine.handle(event))

    # -- computing --------------------------------------------------------------------------

    def _begin(self, order: on.Compute) -> Attempt:
        self._num_tries = order.attempt
        self._enter(order.step, Phase.COMPUTE)
        self._attempt = Attempt(
            order.step,
            self._crew.run,
            leaf_size=self._plan.leaf_size,
            folder=self._crew.folder(self._work.num_gradient_elements),
            stopped=lambda leaf: self._stop_before(order, leaf),
            audited=self._scrutiny.audited(order, self._crew.shares.runs, self._crew.hosts),
        )
        return self._attempt

    def _stop_before(self, order: on.Compute, leaf: int) -> bool:
        self._enter(order.step, Phase.COMPUTE, leaf)
        # The ranks of a replica compute together or not at all: whoever has no group to reduce
        # in still comes here, to say so to those that have.
        ended = not self._crew.is_formed or self._notices.aborted(order.epoch) is not None
        return self._work.agree(ended)

    def _computed(self, order: on.Compute) -> on.Event:
        attempt = self._attempt
        aborted = self._notices.aborted(order.epoch)
        if attempt is None or (attempt.stopped_early and aborted is not None):
            return on.Aborted(order.epoch, aborted or "left")
        if attempt.refusal:
            return on.ComputeFailed(order.epoch, order.step, attempt.refusal)
        if attempt.stopped_early:
            return on.ReductionBroken(order.epoch, order.step, "a rank of this replica left")
        if not attempt.complete:
            raise ConfigError(
                f"the loop's body left step {order.step} before all of it was computed",
                "every leaf, every time",
                "call refuse(reason) where a step must not be committed",
            )
        return on.Computed(order.epoch, order.step)

    # -- instructions -----------------------------------------------------------------------

    def _join(self, _order: on.JoinQuorum) -> on.Event:
        self._crew.leave()
        self._enter(self.committed_step, Phase.JOIN)
        unreached, self._crew.unreached = self._crew.unreached, ()  # said once
        numbers = self._healer.numbers(self._spent.usual_s)
        report = msgspec.structs.replace(self._machine.report(), unreached=unreached, **numbers)
        if isinstance(told := self._client.join(report), Announcement):
            self._healer.keep_ahead(told, self._place.member, report.committed_step)
            return on.Announced(told)
        return told

    def _finish(self, order: on.Finish) -> None:
        if order.left:
            self._observer.leaving(order.step, order.epoch, order.left, save=order.save)
        else:
            self._observer.finished(order.step, order.epoch, save=order.save)
        self.left = order.left
        self._enter(order.step, Phase.DONE)

    def _form(self, order: on.FormGroup) -> on.Event | None:
        told = order.announcement
        step = told.committed_step + 1
        self._enter(step, Phase.COMPUTE)
        self._healer.keep(lent_steps(told, self._place.member), ahead=bool(told.repairs))
        try:
            self._crew.form(told)
        except BROKEN as broken:
            return on.ReductionBroken(told.epoch, step, str(broken))
        return None

    def _reduce(self, order: on.Reduce) -> on.Event:
        self._enter(order.step, Phase.REDUCE)
        try:
            digest = self._crew.reduce()
            self._measures = self._crew.gather(self._work.measure(self._crew.reduced))
        except BROKEN as broken:
            return on.ReductionBroken(order.epoch, order.step, str(broken))
        refusal = self._work.check(order.step, self._crew.reduced) or ""
        self._scrutiny.count(order.step, unfit=bool(refusal))
        unfit = self._crew.unfit_share() if refusal else ""
        return on.Reduced(
            order.epoch,
            order.step,
            digest,
            fingerprint=self._fingerprint(),
            refusal=": ".join(filter(None, (unfit, refusal))),
            own_share=bool(unfit),
        )

    def _vote(self, order: on.CastVote) -> on.Event:
        ballot = self._scrutiny.filled(order.ballot, self._attempt)
        ballot = msgspec.structs.replace(ballot, save=self._work.save_note(ballot.step))
        self._enter(ballot.step, Phase.VOTE)
        try:
            votes = self._crew.vote(ballot)
        except BROKEN as broken:
            seen = self._crew.votes_seen()
            return on.VotesBroken(ballot.epoch, ballot.step, str(broken), seen)
        self._observer.moment(Moment.VOTED, ballot.step)
        self._scrutiny.look(ballot, votes)
        self._hear_of_checkpoints(ballot.step, votes)
        return on.VotesIn(ballot.epoch, ballot.step, votes)

    def _hear_of_checkpoints(self, step: int, votes: Votes) -> None:
        """Pass on what the members say of the state before ``step``, and of the disk (H-5, Q-9)."""
        seen = {v.fingerprint for m, v in votes.items() if m.rank == self._place.rank}
        notes = {member: vote.save for member, vote in votes.items()}
        self._work.voted(step, seen, notes)
        self._machine.handle(on.CheckpointWritten(max(n.complete for n in notes.values())))

    def _apply(self, order: on.Apply) -> on.Event:
        self._enter(order.step, Phase.APPLY)
        live = self._crew.summed(order.step, order.epoch, self._measures)
        kept = self._healer.copy_step(live)
        result = self._work.apply(order.step, live.gradient, live.measures)
        self._healer.keep_step(kept)
        fingerprint = self._fingerprint()
        shares, tries = self._crew.shares, self._num_tries
        line = self._scribe.applied(order, result, fingerprint, shares=shares, attempt=tries)
        self._observer.committed(line, result)
        self._observer.moment(Moment.APPLIED, order.step)
        return on.Applied(order.step, fingerprint)

    def _discard(self, order: on.Discard) -> None:
        self._observer.discarded(order.step, order.epoch, order.reason)

    def _restore(self, order: on.Restore) -> on.Event:
        self._enter(order.step, Phase.LEARN)
        self._healer.keep()  # what is served may be the very tensors that are overwritten now
        self._observer.restoring(order.step, order.reason)
        try:
            self._work.restore(order.step, order.epoch.term)
        except CheckpointDamaged as damaged:
            self._observer.restore_failed(order.step, str(damaged))
            return on.RestoreFailed(order.epoch, str(damaged), self._work.restorable_step())
        self._scribe.restored(order)
        self._observer.restored(order.step, order.epoch, order.reason)
        return on.Restored(order.epoch, order.step, self._work.fingerprint())

    def _learn(self, order: on.Learn) -> on.Event:
        self._enter(order.step, Phase.LEARN)
        return self._healer.learn(order)

    def _serve(self, order: on.Serve) -> None:
        self._enter(order.step, Phase.HOLD)  # a copy of the state may take its time
        self._healer.serve(order)

    def _fingerprint(self) -> str:
        """Take the state's fingerprint; its cost stands in the ledger's durations (Q-9)."""
        before = self._spent.enter("fingerprint")
        value = self._work.fingerprint()
        self._spent.enter(before)
        return value

    def _collective(self, number: int) -> None:
        """Move the position on as the group begins an exchange (P-3)."""
        self._observer.entered(*self._at, number)

    def _enter(self, step: int, phase: Phase, number: int = 0) -> None:
        self._at, self._client.step = (step, phase), self.committed_step
        self._spent.enter(phase.name.lower())
        self._observer.entered(step, phase, number)


_CARRY_OUT: dict[type, Callable[[Participant, Any], on.Event | None]] = {
    on.JoinQuorum: Participant._join,
    on.FormGroup: Participant._form,
    on.Reduce: Participant._reduce,
    on.CastVote: Participant._vote,
    on.Apply: Participant._apply,
    on.Discard: Participant._discard,
    on.Restore: Participant._restore,
    on.Learn: Participant._learn,
    on.Serve: Participant._serve,
}
