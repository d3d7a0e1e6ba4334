"""The life of one step at one member process, as a pure machine.

Owns what a member decides: when it computes, votes, commits, joins the next quorum, learns,
serves and restores.  ``ft.step_events`` names what it hears and orders, ``ft.tally`` counts
votes, ``ft.course`` reads announcements, ``quorum.resolve`` decides the open step's outcome at the
service; the shell that computes and exchanges is ``ft.participant``.

Invariants:
    T-1: one vote per (step, epoch).  A step is applied where every member of its epoch is known
    to be prepared with one digest per rank and without a veto, or where an announcement says so;
    it is discarded only where an announcement says so.  Nothing is decided alone: without that
    knowledge the reduced gradient is kept and the next quorum is joined, and joining promises no
    vote in an older epoch, whatever arrives late.
    T-2: a discarded step leaves this machine as it was before it, but for the attempt's number.
    Q-1: announcements are followed in the order of their epochs; an older or repeated one is not.
    Q-2: a pending change is named on the vote, so that all members turn to the service after the
    same step.  Known only after the vote was cast, it is named on the next one.
    H-1: a learner neither computes nor votes; a transfer that failed leaves a state that nobody
    may count on, and the report says so.  A state that was learned while the members went on is
    led on from, by the gradients that are missing; any other is fetched anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from danaus.core.errors import InternalError
from danaus.ft import step_events as on
from danaus.ft.course import learner_in, pupils_of, read_course
from danaus.ft.holding import SPOILED, Past, State, learn_order, serve_order
from danaus.ft.stage import Stage
from danaus.ft.tally import tally
from danaus.quorum.messages import (
    Announcement,
    Epoch,
    MemberId,
    OpenStep,
    QuorumRecord,
    Released,
    StepReport,
    Vote,
)
from danaus.quorum.resolve import resolve

__all__ = ["Stage", "StepMachine", "resolve"]

Instructions = tuple[on.Instruction, ...]


class StepMachine:
    """Decide one member process's part in every step (T-1, T-2, Q-2, Q-9, H-1).

    Args:
        member: Who this is.
        num_ranks: How many ranks each replica has.
        total_steps: The number of steps after which the run is done.
        fingerprint: Of the initial weights.
        restorable_step: The newest checkpoint that this process could restore (0: the seed).
        veto: Whether unequal fingerprints refuse a step (Q-9); the same at every member.
    """

    def __init__(
        self,
        member: MemberId,
        num_ranks: int,
        total_steps: int,
        *,
        fingerprint: str,
        restorable_step: int = 0,
        veto: bool = True,
    ) -> None:
        self.member = member
        self.num_ranks = num_ranks
        self.total_steps = total_steps
        self.veto = veto
        self.stage = Stage.NEW
        self.state = State(0, fingerprint)
        self._restorable_step = restorable_step
        self._open: OpenStep | None = None
        self._attempts = (0, 0)  # the step last begun, and how often
        self._standing: Announcement | None = None  # the announcement last followed
        self._entered = False  # whether its learners are served and its group is formed
        self._last_epoch: Epoch | None = None  # the newest announced, followed or not
        self._last_quorum: QuorumRecord | None = None  # under a name that was given up
        self._change = ""  # to be named on the next vote
        self._leave = ""  # why to join after the work in hand

    # -- the face ---------------------------------------------------------------------------

    def handle(self, event: on.Event) -> Instructions:
        """Return what to do now that ``event`` has happened, in order.

        Raises:
            InternalError: An announcement contradicts what this member holds (T-1).  Such a
                process must end: under a new incarnation it learns its state from its peers.
        """
        if self.stage is Stage.FINISHED:
            return ()
        return _HANDLERS[type(event)](self, event)

    def report(self) -> StepReport:
        """Return what this member says of itself when it joins."""
        return StepReport(
            committed_step=self.state.step,
            fingerprint=self.state.fingerprint,
            committed_epoch=self.state.epoch,
            last_quorum=self._standing.record() if self._standing else self._last_quorum,
            open_step=self._open,
            seen_epoch=self._last_epoch,
            restorable_step=self._restorable_step,
            done=self._done(),
            lineage_term=self.state.lineage_term,
            caught_up=self.state.caught_up,
        )

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of the quorum last followed."""
        return self._standing.epoch if self._standing else None

    def take_up(self, past: Past) -> None:
        """Begin with what this process held under a name that it gave up (H-3)."""
        self.state, self._last_epoch, self._last_quorum = past.state, past.seen_epoch, past.quorum

    def renounce(self) -> Past:
        """Give this name up: nothing is decided or voted under it any more (H-3, T-1).

        What is open is dropped; a step that is half applied spoils the state.
        """
        state = SPOILED if self.stage is Stage.APPLYING else self.state
        past = Past(state, self.report().last_quorum, self._last_epoch)
        self.stage, self._open = Stage.FINISHED, None
        return past

    # -- events -----------------------------------------------------------------------------

    def _started(self, _event: on.Started) -> Instructions:
        return self._join() if self.stage is Stage.NEW else ()

    def _announced(self, event: on.Announced) -> Instructions:
        told = event.announcement
        asked = self.stage is Stage.JOINING
        is_old = self._last_epoch is not None and told.epoch <= self._last_epoch
        # The end of the run that nobody asked for comes again, and nothing else, to one who asks.
        if is_old or (told.finished and not asked):
            return ()
        self._last_epoch = told.epoch
        # What answers no ask rests on a report that no longer holds; it is never followed.
        return self._follow(told) if asked else ()

    def _released(self, event: Released) -> Instructions:
        if self.stage is not Stage.JOINING:
            return ()
        self.stage = Stage.FINISHED
        return (on.Finish(self.state.step, event.reason, event.save, self.state.epoch),)

    def _change_known(self, event: on.ChangeKnown) -> Instructions:
        if event.epoch == self.epoch:
            self._change = event.reason
        return ()

    def _computed(self, event: on.Computed) -> Instructions:
        if not self._in(Stage.COMPUTING, event.epoch, event.step):
            return ()
        self.stage = Stage.REDUCING
        return (on.Reduce(event.epoch, event.step),)

    def _compute_failed(self, event: on.ComputeFailed) -> Instructions:
        if not self._in(Stage.COMPUTING, event.epoch, event.step):
            return ()
        return self._refuse(event.reason)

    def _reduced(self, event: on.Reduced) -> Instructions:
        if not self._in(Stage.REDUCING, event.epoch, event.step):
            return ()
        if event.fingerprint:
            self.state = msgspec.structs.replace(self.state, fingerprint=event.fingerprint)
        vote = self._record("refused" if event.refusal else "prepared", event)
        self.stage = Stage.VOTING
        ballot = on.Ballot(
            self.member, vote.epoch, vote.step, vote.vote, vote.digest, self.state.fingerprint,
            self._change, vote.reason, event.own_share,
        )  # fmt: skip
        self._leave = self._leave or self._change
        return (on.CastVote(ballot),)

    def _reduction_broken(self, event: on.ReductionBroken) -> Instructions:
        # The group may be found broken before this member's own leaves are done.
        stages = (Stage.COMPUTING, Stage.REDUCING)
        if not any(self._in(stage, event.epoch, event.step) for stage in stages):
            return ()
        return self._refuse(event.reason)

    def _votes_known(self, event: on.VotesIn | on.VotesBroken) -> Instructions:
        if not self._in(Stage.VOTING, event.epoch, event.step):
            return ()
        broken = event.reason if isinstance(event, on.VotesBroken) else ""
        self._leave = self._leave or broken  # a commit needs the votes only, the next step a group
        return self._counted(event.votes, broken)

    def _applied(self, event: on.Applied) -> Instructions:
        done = self._open
        if self.stage is not Stage.APPLYING or done is None or done.step != event.step:
            return ()
        self.state = State(event.step, event.fingerprint, done.epoch, self.state.lineage_term)
        self._open = None
        return self._go_on()

    def _restored(self, event: on.Restored | on.RestoreFailed) -> Instructions:
        if self.stage is not Stage.RESTORING or event.epoch != self.epoch:
            return ()
        if isinstance(event, on.RestoreFailed):
            self._restorable_step = event.restorable_step
            return self._join()
        self.state = State(event.step, event.fingerprint, None, self._lineage())
        self._restorable_step = event.step
        return self._go_on()

    def _learned(self, event: on.Learned | on.LearnFailed) -> Instructions:
        if self.stage is not Stage.LEARNING or event.epoch != self.epoch:
            return ()
        if isinstance(event, on.Learned):
            told = self._standing and learner_in(self._standing, self.member)
            self._hold(event, trailed=bool(told and told.trail))
        elif event.held is not None:
            self._hold(event.held)
        return self._join()

    def _hold(self, held: on.Learned, *, trailed: bool = False) -> None:
        epoch = held.committed_epoch
        self.state = State(held.step, held.fingerprint, epoch, self._lineage(), trailed)

    def _aborted(self, event: on.Aborted) -> Instructions:
        if event.epoch != self.epoch:
            return ()
        self._leave = self._leave or event.reason
        if self.stage is Stage.LEARNING and event.held is not None:
            self._hold(event.held)
        if self.stage in (Stage.COMPUTING, Stage.REDUCING, Stage.LEARNING):
            return self._join()
        if self.stage is Stage.VOTING:
            return self._counted(event.votes, event.reason)
        return ()

    def _checkpoint_written(self, event: on.CheckpointWritten) -> Instructions:
        self._restorable_step = max(self._restorable_step, event.step)
        return ()

    # -- following an announcement ------------------------------------------------------------

    def _follow(self, told: Announcement) -> Instructions:
        """Settle the open step as told, then stand where all members stand."""
        course = read_course(told, self.member, self.report(), num_ranks=self.num_ranks)
        if course.todo == "nothing":
            return ()
        self._standing = told
        self._entered = False
        self._change = self._leave = ""
        if course.todo == "apply" and self._open:
            self._descend(told)
            self.stage = Stage.APPLYING
            return (on.Apply(self._open.step, self._open.epoch),)
        dropped = self._drop(course.reason)
        if course.todo == "finish":
            self.stage = Stage.FINISHED
            if course.learner and self._done():
                self.state = SPOILED  # the others have ended the last step with another
            save = self.member.replica_id == min(told.replica_ids, default="")
            return (*dropped, on.Finish(self.state.step, save=save, epoch=self.state.epoch))
        if course.todo == "restore":
            self.stage = Stage.RESTORING
            self.state = SPOILED
            return (*dropped, on.Restore(told.epoch, told.committed_step, told.reason))
        if course.todo == "learn" and course.learner:
            order = learn_order(told, course.learner, self.state)
            self.stage = Stage.LEARNING
            self.state = SPOILED  # a transfer overwrites it in place
            return (*dropped, order)
        if course.todo == "wait":
            return (*dropped, *self._join())
        self._descend(told)
        return (*dropped, *self._go_on())

    def _descend(self, told: Announcement) -> None:
        term = told.lineage_term
        self.state = msgspec.structs.replace(self.state, lineage_term=term, caught_up=False)

    def _drop(self, reason: str) -> Instructions:
        left, self._open = self._open, None
        return (on.Discard(left.step, left.epoch, reason),) if left else ()

    # -- going on -----------------------------------------------------------------------------

    def _go_on(self) -> Instructions:
        """Serve, then hold, finish, turn to the service or begin the next step."""
        told = self._standing
        if told is None:
            raise InternalError("T-1", f"{self.member} would go on without a quorum")
        entering, self._entered = not self._entered, True
        serve = self._serve(told) if entering else ()
        if told.hold or self._leave or self._done():
            return (*serve, *self._join())
        step = self.state.step + 1
        begun, attempts = self._attempts
        self._attempts = (step, attempts + 1 if begun == step else 1)
        self._open = OpenStep(step=step, epoch=told.epoch, vote="none")
        self.stage = Stage.COMPUTING
        form = (on.FormGroup(told),) if entering else ()
        return (*serve, *form, on.Compute(told.epoch, step, self._attempts[1]))

    def _serve(self, told: Announcement) -> Instructions:
        pupils = pupils_of(told, self.member)
        return (serve_order(told.epoch, pupils, self.state),) if pupils else ()

    def _join(self) -> Instructions:
        self.stage = Stage.JOINING
        return (on.JoinQuorum(self.report()),)

    def _record(self, vote: Vote, event: on.Reduced) -> OpenStep:
        """Write down this member's vote before it is cast; there is no second one."""
        if self._open is None or self._open.vote != "none":
            raise InternalError("T-1", f"{self.member} would vote twice on step {event.step}")
        self._open = OpenStep(
            step=event.step,
            epoch=event.epoch,
            vote=vote,
            digest="" if event.refusal else event.digest,
            refused_seen=bool(event.refusal),
            reason=event.refusal,
        )
        return self._open

    def _refuse(self, reason: str) -> Instructions:
        """Refuse without a ballot: the group is no longer fit to carry one, joining tells it."""
        if self._open is None:
            raise InternalError("T-1", f"{self.member} would refuse a step that is not open")
        self._open = msgspec.structs.replace(
            self._open, vote="refused", refused_seen=True, reason=reason
        )
        return self._join()

    def _counted(self, votes: on.Votes, broken: str) -> Instructions:
        """Commit on full knowledge; else keep the gradient and join with what is known."""
        mine = self._open
        if mine is None or self._standing is None:
            raise InternalError("T-1", f"{self.member} counts votes on a step that is not open")
        members = self._standing.record().members
        count = tally(votes, members, epoch=mine.epoch, step=mine.step, veto=self.veto)
        if count.count == "commit":
            self._leave = self._leave or count.change_pending
            self.stage = Stage.APPLYING
            return (on.Apply(mine.step, mine.epoch),)
        refused = mine.refused_seen or count.count == "refused"
        self._open = msgspec.structs.replace(
            mine, refused_seen=refused, reason=count.reason if refused else broken or count.reason
        )
        return self._join()

    def _in(self, stage: Stage, epoch: Epoch, step: int) -> bool:
        """Tell whether an event answers the work in hand, and not work that was left."""
        mine = self._open.step if self._open else None
        return self.stage is stage and epoch == self.epoch and step == mine

    def _lineage(self) -> int:
        return self._standing.lineage_term if self._standing else 0

    def _done(self) -> bool:
        return self._open is None and self.state.step >= self.total_steps


_HANDLERS: dict[type, Callable[[StepMachine, Any], Instructions]] = {
    on.Started: StepMachine._started,
    on.Announced: StepMachine._announced,
    Released: StepMachine._released,
    on.ChangeKnown: StepMachine._change_known,
    on.Computed: StepMachine._computed,
    on.ComputeFailed: StepMachine._compute_failed,
    on.Reduced: StepMachine._reduced,
    on.ReductionBroken: StepMachine._reduction_broken,
    on.VotesIn: StepMachine._votes_known,
    on.VotesBroken: StepMachine._votes_known,
    on.Applied: StepMachine._applied,
    on.Restored: StepMachine._restored,
    on.RestoreFailed: StepMachine._restored,
    on.Learned: StepMachine._learned,
    on.LearnFailed: StepMachine._learned,
    on.Aborted: StepMachine._aborted,
    on.CheckpointWritten: StepMachine._checkpoint_written,
}
