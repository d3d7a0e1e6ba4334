"""One simulated member process: the real step machine in a shell made of the engine's time.

The shell does what ``ft.participant`` does, with strings for tensors.  It is as ill-mannered as
the contracts allow: late results of work that was left are delivered, aborts come as whatever
event they may come as, and a process can be stopped or killed between any two instructions.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.simulation.engine import Violation
from tests.simulation.learning import LearningMember
from tests.simulation.model import Kept, Model, grown, seed_model

from danaus.core.errors import InternalError
from danaus.ft.holding import Past
from danaus.ft.step import StepMachine
from danaus.ft.step_events import (
    Aborted,
    Announced,
    Applied,
    Apply,
    ChangeKnown,
    CheckpointWritten,
    Discard,
    Event,
    Finish,
    JoinQuorum,
    Restore,
    Restored,
    RestoreFailed,
    Started,
)
from danaus.quorum.messages import (
    AbortExchange,
    Announcement,
    ChangePending,
    Join,
    MemberId,
    QuorumRecord,
    Refused,
    Released,
    Seat,
)

BEAT_S = 1.0
MEET_LIMIT_S = 10.0
"""How long the ranks of a repaired replica wait for each other."""
STEP_S = 0.3
"""What a step takes as members tell it."""


class Member(LearningMember):
    """A process of one replica, from its start to its death."""

    def __init__(
        self, world: Any, who: MemberId, host: str, *, before: Member | None = None
    ) -> None:
        super().__init__(world, who, host)
        self.model = before.model if before else seed_model(who.rank)
        self.before, self.after = before, None  # of one process, under its other names
        self.machine = StepMachine(
            who,
            world.plan.ranks,
            world.plan.steps,
            fingerprint=self.model.fingerprint,
            restorable_step=world.checkpoints.newest(),
        )
        formerly = (*before.seat.formerly, before.who) if before else ()
        self.seat = Seat(
            who,
            world.plan.ranks,
            f"sim:{who}",
            host,
            str(who),
            rejoins=world.plan.repairs,
            formerly=formerly,
        )
        self.session: Any = None
        self.number = 0
        self.asking = False
        self.said: tuple[MemberId, ...] = ()  # whom the ask says to be out of reach
        self.finished = self.exited = False
        self.refused: Refused | None = None
        self.known_votes: Any = {}  # the ballots last handed to the machine
        self.writing: Model | None = None  # to the disk, beside the training
        self.echoing = False
        self.born_at = self.clock
        self.immortal_until = 0.0  # in the kernel: a signal to kill it waits
        self.later(self.engine.random.uniform(0.05, 0.3), self.begin)

    def take_up(self, past: Past) -> None:
        """Begin with what this process held under its last name."""
        if past.state.fingerprint:
            state = replace(past.state, fingerprint=self.model.fingerprint)
            past = replace(past, state=state)
        self.machine.take_up(past)

    # -- between machine and shell ------------------------------------------------------------

    def begin(self) -> None:
        if not self.world.has_met(self):
            if self.clock - self.born_at > MEET_LIMIT_S:  # whoever starts it may be gone
                self.world.kill(self, "its siblings did not come")
            self.later(0.05, self.begin)
            return
        self.world.connect(self)
        self.feed(Started())

    def feed(self, event: Event) -> None:
        self.engine.note(self.name, event)
        self.known_votes = getattr(event, "votes", None) or self.known_votes
        try:
            orders = self.machine.handle(event)
        except InternalError as error:
            raise Violation(error.label, str(error)) from error
        self.obey(list(orders))

    def obey(self, orders: list[Any]) -> None:
        """Obey one by one; a process may be stopped or killed between any two."""
        while orders and self.alive:
            if self.stopped:
                self.resume_with(self.obey, orders)
                return
            order = orders.pop(0)
            self.engine.note(self.name, order)
            getattr(self, "do_" + type(order).__name__)(order)

    # -- the service ----------------------------------------------------------------------

    def standing(self) -> QuorumRecord | None:
        return self.machine.report().last_quorum

    def do_JoinQuorum(self, order: JoinQuorum) -> None:  # noqa: N802
        self.world.monitor.joining(self, order.report)
        if not self.happens("joining"):
            return
        self.leave_group()
        self.said, self.unreached = self.unreached, ()  # said once
        self.world.monitor.unreached(self, self.said)
        self.asking = True
        self.ask()
        self.happens("joined")

    def ask(self) -> None:
        """Send the ask that is outstanding, under a new number."""
        if self.session and self.asking:
            self.number += 1
            plan = self.world.plan
            report = replace(
                self.machine.report(),
                unreached=self.said,
                lends=plan.lends(self.who),
                step_s=STEP_S,
                lesson_s=self.lesson_s,
                state_bytes=plan.state_bytes,
            )
            self.session.to_service(Join(self.seat, report, self.number))

    def hear(self, message: Any) -> None:
        """Take a message from the service."""
        if isinstance(message, Announcement):
            self.engine.note(self.name, ("hears", message.epoch))
            if self.happens("announced"):
                self.run(self.follow, message)
        elif isinstance(message, ChangePending):
            self.feed(ChangeKnown(message.epoch, message.reason))
        elif isinstance(message, AbortExchange):
            self.abort(message)
        elif isinstance(message, Released):
            self.feed(message)
        elif isinstance(message, Refused):
            self.refused = message
            self.world.refused(self, message)

    def follow(self, told: Announcement) -> None:
        self.keep_ahead(told)
        # What is followed answers the ask; following it may be to ask again at once.
        before, asking, self.asking = self.machine.epoch, self.asking, False
        self.feed(Announced(told))
        if self.machine.epoch == before:
            self.asking = asking
        else:
            self.world.monitor.followed(self, told)

    def abort(self, message: AbortExchange) -> None:
        group, votes = self.group, {}
        if group and group.announcement.epoch == message.epoch:
            if group.meeting:
                self.cannot_meet(message.reason)
                return
            what, step = group.waiting
            votes = group.ballots.get(step, {}) if what == "vote" else {}
            # A blocked exchange is left by an exception, which may win the race.
            if what and self.engine.random.random() < 0.5:
                self.broken(message.reason)
                return
        # What is learned in another epoch goes on: it is no other's to end.
        held = self.broken_off() if message.epoch == self.machine.epoch else None
        self.feed(Aborted(message.epoch, message.reason, dict(votes), held))

    def leap(self, span: float) -> None:
        super().leap(span)
        self.later(0.0, self.broken, "a deadline passed")

    # -- outcomes ----------------------------------------------------------------------

    def do_Apply(self, order: Apply) -> None:  # noqa: N802
        kept = self.kept
        if kept is None or (kept.step, kept.epoch) != (order.step, order.epoch):
            raise Violation("T-1", f"{self.name} applies step {order.step}, but holds {kept}")
        if not self.happens("committing"):
            return
        self.later(self.engine.random.uniform(0.005, 0.02), self.apply, kept)

    def apply(self, kept: Kept) -> None:
        self.kept = None
        old = self.model
        if old.step != kept.step - 1:
            raise Violation("T-1", f"{self.name} applies step {kept.step} to step {old.step}")
        self.model = grown(old, kept)
        if self.log is not None:
            self.log.add(kept)
        self.world.monitor.committed(self, kept)
        if not self.happens("applied"):
            return
        self.world.checkpoints.offer(self)
        self.run(self.feed, Applied(kept.step, self.model.fingerprint))

    def saved(self, step: int) -> None:
        """A checkpoint is complete; it may be restored."""
        self.feed(CheckpointWritten(step))

    def do_Discard(self, order: Discard) -> None:  # noqa: N802
        self.world.monitor.discarding(self, order)
        self.kept = None
        self.happens("discarding")

    # -- healing ----------------------------------------------------------------------

    def do_Restore(self, order: Restore) -> None:  # noqa: N802
        self.lend_nothing()
        self.writing = self.prefetched = None
        self.model = Model(-1, "overwritten")
        if self.happens("restoring"):
            self.later(self.engine.random.uniform(0.01, 0.1), self.restore, order)

    def restore(self, order: Restore) -> None:
        saved = self.world.checkpoints.load(order.step, self.who.rank)
        if saved is None:
            newest = self.world.checkpoints.newest()
            self.feed(RestoreFailed(order.epoch, "damaged", newest))
            return
        self.world.checkpoints.forget_after(order.step, order.epoch)
        self.model = saved
        self.world.monitor.restored(self, order)
        if self.happens("restored"):
            self.run(self.feed, Restored(order.epoch, order.step, saved.fingerprint))

    def do_Finish(self, order: Finish) -> None:  # noqa: N802
        if order.left:
            self.exited = True
            self.world.kill(self, order.left)
            return
        self.finished = True
        if order.save:
            self.world.checkpoints.ended(self)
        self.world.monitor.finished(self, order)
        self.later(0.2, self.world.exit, self)
