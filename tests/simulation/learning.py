"""A simulated member's two ends of healing: what it lends, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.simulation.engine import Violation
from tests.simulation.group import GroupMember
from tests.simulation.model import Kept, Model, flipped, grown

from danaus.ft.stage import Stage
from danaus.ft.step_events import Event, Learn, Learned, LearnFailed, Serve
from danaus.quorum.messages import Announcement

LEARN_LIMIT_S = 5.0
NEAR = 1


@dataclass
class Log:
    """The gradients that a donor keeps for learners that trail: those after ``since``."""

    lineage_term: int
    since: int
    room: int
    kept: dict[int, Kept] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.kept, default=self.since)

    def add(self, kept: Kept) -> None:
        self.kept[kept.step] = kept
        while len(self.kept) > self.room:
            del self.kept[min(self.kept)]


@dataclass
class Ahead:
    """Gradients that a learner that has caught up fetched while its ask was on its way."""

    lineage_term: int
    after: int
    kept: dict[int, Kept] = field(default_factory=dict)

    @property
    def due(self) -> int:
        return self.after + len(self.kept) + 1


class LearningMember(GroupMember):
    """The part of a member process that gives and takes states."""

    garbling = False
    lesson: Learn | None = None
    distance = 0
    began_at = lesson_s = 0.0
    leading = False  # from a state that was held to the one that is taught

    def feed(self, event: Event) -> None:
        raise NotImplementedError

    # -- as a donor -----------------------------------------------------------------------

    def do_Serve(self, order: Serve) -> None:  # noqa: N802
        if self.model.step != order.step:
            raise Violation("H-2", f"{self.name} serves {order.step} at {self.model.step}")
        self.snapshots[order.step] = (self.model, order.committed_epoch)
        if self.log is None and any(pupil.trail for pupil in order.learners):
            self.log = Log(order.lineage_term, order.step, self.world.plan.log_room)
        self.happens("serving")

    def keep_ahead(self, told: Announcement) -> None:
        """Keep the gradients that a replica will need which is being repaired."""
        if told.repairs and any(seat.member == self.who for seat in told.members):
            lineage = told.lineage_term
            if self.log is None or self.log.lineage_term != lineage:
                self.log = Log(lineage, self.model.step, self.world.plan.log_room)

    def lend_nothing(self) -> None:
        self.snapshots, self.log = {}, None

    # -- as a learner ---------------------------------------------------------------------

    def do_Learn(self, order: Learn) -> None:  # noqa: N802
        self.lend_nothing()
        leads = self.prefetched and (self.prefetched.lineage_term, self.prefetched.after)
        if leads != (order.lineage_term, order.held_step):
            self.prefetched = None
        self.lesson, self.distance, self.began_at = order, 10**6, self.clock
        self.leading = order.held_step is not None and order.held_step <= order.step
        if order.held_step is None:
            self.model = Model(-1, "overwritten")
        elif order.held_step != self.model.step:
            raise Violation("H-1", f"{self.name} holds {self.model.step}, not {order.held_step}")
        if self.happens("learning"):
            limit = self.clock + LEARN_LIMIT_S
            act = self.fetch if order.held_step is None else self.replay
            self.later(self.engine.delay(), act, order, limit)

    def broken_off(self) -> Learned | None:
        """Leave a lesson; return the committed state that there is."""
        order, self.lesson = self.lesson, None
        if order is None or self.model.step < 0 or self.machine.stage is not Stage.LEARNING:
            return None
        return Learned(order.epoch, self.model.step, self.model.fingerprint, self.model.epoch)

    def reaches(self, other: Any) -> bool:
        held = self.engine.apart_until(self.host, other.host)
        return other.alive and not other.stopped and not held

    def donors(self, order: Learn) -> list[Any]:
        """Return the donors that can be dialled now."""
        known = [self.world.processes.get(seat.member) for seat in order.learner.donors]
        return [donor for donor in known if donor and self.reaches(donor)]

    def fetch(self, order: Learn, limit: float) -> None:
        """Try each donor; a donor that dies meanwhile is replaced by the next."""
        for donor in self.donors(order):
            if order.step in donor.snapshots:
                takes = 3.0 if order.learner.trail else 0.5
                span = self.engine.random.uniform(0.05, takes)
                self.later(span, self.fetched, order, limit, donor)
                return
        self.fail(order, limit)

    def fail(self, order: Learn, limit: float) -> None:
        """Look for donors again, for a while."""
        if self.clock < limit:
            self.later(0.2, self.fetch, order, limit)
        else:
            self.feed(LearnFailed(order.epoch, "no donor could serve"))

    def fetched(self, order: Learn, limit: float, donor: Any) -> None:
        if not self.reaches(donor) or order.step not in donor.snapshots:
            self.fetch(order, limit)
            return
        model, epoch = donor.snapshots[order.step]
        if self.garbling:
            self.garbling = False
            model = flipped(model, f"garbled by {self.name}")
        if self.lesson is not order:  # it comes too late: other bytes are being written by now
            self.feed(Learned(order.epoch, order.step, model.fingerprint, epoch))
            return
        self.engine.note(self.name, ("fetches", "a state"))
        self.model, self.leading = model, False
        self.lesson_s = self.clock - self.began_at
        if not self.happens("fetched"):
            return
        if order.learner.trail:
            self.run(self.replay, order, limit)
        else:
            self.run(self.feed, Learned(order.epoch, order.step, model.fingerprint, epoch))

    # -- catching up ----------------------------------------------------------------------

    def replay(self, order: Learn, limit: float) -> None:
        """Apply what the donors have applied since, one gradient after the other."""
        if self.lesson is not order:
            return
        logs = [
            (donor, donor.log)
            for donor in self.donors(order)
            if donor.log and donor.log.lineage_term == order.lineage_term
        ]
        goal = max((log.newest for _, log in logs), default=-1)
        if order.learner.trail is None or self.leading:
            goal = order.step
            if self.model.step == goal:
                self.compare(order, limit)
                return
        elif goal - self.model.step <= NEAR or goal - self.model.step > self.distance:
            self.arrive(order, known=bool(logs))
            return
        self.distance = goal - self.model.step
        due = self.model.step + 1
        if self.prefetched and due in self.prefetched.kept:
            self.grow(order, limit, self.prefetched.kept[due])
            return
        for donor, log in logs:
            if due in log.kept:
                self.later(self.engine.random.uniform(0.005, 0.15), self.replayed, order, limit,
                           donor, due)  # fmt: skip
                return
        self.stuck(order, limit)

    def replayed(self, order: Learn, limit: float, donor: Any, step: int) -> None:
        if self.lesson is not order:
            return
        kept = donor.log.kept.get(step) if donor.log else None
        if kept is None or not self.reaches(donor):
            self.replay(order, limit)
            return
        self.grow(order, limit, kept)

    def grow(self, order: Learn, limit: float, kept: Kept) -> None:
        self.model = grown(self.model, kept)
        if self.garbling:
            self.garbling = False
            self.model = flipped(self.model, f"garbled by {self.name}")
        self.world.monitor.replayed(self)
        if self.happens("replayed"):
            self.run(self.replay, order, limit)

    def arrive(self, order: Learn, *, known: bool) -> None:
        """End a trail near the members, or because there is nobody to follow any more."""
        model = self.model
        if not known:
            self.feed(LearnFailed(order.epoch, "no donor keeps its gradients", self.broken_off()))
        elif self.happens("caught up"):
            learned = Learned(order.epoch, model.step, model.fingerprint, model.epoch)
            self.run(self.feed, learned)
            self.prefetched = Ahead(order.lineage_term, model.step)
            self.look_ahead(order, self.prefetched)

    def look_ahead(self, order: Learn, ahead: Ahead) -> None:
        """Fetch what the members do while they do not stand still yet."""
        if self.prefetched is not ahead or self.lesson is not order:
            return
        for donor in self.donors(order):
            log = donor.log
            if log and log.lineage_term == ahead.lineage_term and ahead.due in log.kept:
                ahead.kept[ahead.due] = log.kept[ahead.due]
                break
        self.later(self.engine.random.uniform(0.02, 0.2), self.look_ahead, order, ahead)

    def compare(self, order: Learn, limit: float) -> None:
        """Hold the state against the donors'; fetch all of it where it differs."""
        prints = {
            donor.snapshots[order.step][0].fingerprint
            for donor in self.donors(order)
            if order.step in donor.snapshots
        }
        if self.model.fingerprint in prints and order.learner.trail is not None:
            self.leading, self.distance = False, 10**6
            self.replay(order, limit)
        elif self.model.fingerprint in prints:
            model = self.model
            self.feed(Learned(order.epoch, model.step, model.fingerprint, model.epoch))
        elif prints or self.clock >= limit:
            self.stuck(order, limit)
        else:
            self.later(0.1, self.replay, order, limit)

    def stuck(self, order: Learn, limit: float) -> None:
        """Gradients are missing: a trail ends, who is waited for fetches the whole state."""
        if order.learner.trail is not None and not self.leading:
            why = "the donors' gradients do not reach so far back"
            self.feed(LearnFailed(order.epoch, why, self.broken_off()))
            return
        self.model, self.leading = Model(-1, "overwritten"), False
        self.later(self.engine.delay(), self.fetch, order, limit)
