"""How a learner gets its state from its peers, and how a member serves it (H-1, H-2).

Owns the two ends as a participant uses them: ``serve`` publishes a snapshot of the committed
step, ``keep_step`` the steps after it, ``learn`` fetches them.  The way to a state is
``ft.lesson``'s, bytes and their checks are ``ft.transfer``'s.

A learner that has caught up asks to be counted, and fetches the members' next steps meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from danaus.core.clock import Deadline
from danaus.core.errors import ExchangeAborted, TransferFailed
from danaus.ft import step_events as on
from danaus.ft.lesson import NOT_TO_BE_HAD, Lesson, TakeAhead, shape_of, take_nothing
from danaus.ft.manifest import Wanted
from danaus.ft.observer import Moment, Observer
from danaus.ft.state_server import StateServer
from danaus.ft.step_log import LoggedStep
from danaus.ft.steps_ahead import Fetched, StepsAhead
from danaus.ft.transfer import Fetch, FetchReport, Room
from danaus.ft.work import Work, numbers_of
from danaus.quorum.messages import Announcement, Epoch, MemberId
from danaus.quorum.repairs import REPAIR_LIMIT_S
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

LEARN_LIMIT_S = 600.0
FEW_STEPS = 8
"""A donor goes on while a learner loads if it has room for its state and so many gradients."""


class Healer:
    """Serve and learn over the listener that peers dial anyway.

    Args:
        listener: Where learners dial this process.
        secret: The job's.
        work: What is trained.
        observer: Told of moments, and of what was learned.
        aborted: Tells why an epoch has ended, None while it stands.
    """

    def __init__(
        self,
        listener: PeerListener,
        secret: Secret,
        work: Work,
        *,
        observer: Observer,
        aborted: Callable[[Epoch], str | None],
    ) -> None:
        self._server = StateServer(listener)
        self._secret, self._work = secret, work
        self._observer, self._aborted = observer, aborted
        self._lock = threading.Lock()
        self._fetching: tuple[Epoch, Fetch] | None = None
        self._num_bytes_told = 0
        self._lesson_s = 0.0
        self._ahead: StepsAhead | None = None

    def close(self) -> None:
        """Stop serving, and fetching."""
        self._end_ahead()
        self._server.close()
        self._tell_served()

    @property
    def room_bytes(self) -> int:
        """Memory that snapshots may take."""
        return self._server.room_bytes

    def numbers(self, step_s: float) -> dict[str, Any]:
        """Return what a report says of learners: whether one could be served while this goes on.

        And what tells whether that, or waiting for it, is quicker.

        Args:
            step_s: What a step takes.
        """
        return {
            "lends": self._work.replays and self._server.free_bytes >= self._loan_bytes(),
            "step_s": step_s,
            "lesson_s": self._lesson_s,
            "state_bytes": self._state_bytes(),
        }

    def _state_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self._work.state().values())

    def _loan_bytes(self) -> int:
        """Return what a learner takes at least: a state, and some gradients."""
        return self._state_bytes() + FEW_STEPS * 4 * self._work.num_gradient_elements

    def keep_ahead(self, told: Announcement, member: MemberId, step: int) -> None:
        """Keep the steps after ``step`` where a replica will be back that has it (H-3)."""
        counted = any(seat.member == member for seat in told.members)
        if told.repairs and counted and self._work.replays:
            self._server.log.begin_ahead(
                told.lineage_term,
                step,
                until=Deadline.after(REPAIR_LIMIT_S),
                free_bytes=self._loan_bytes(),
            )

    def serve(self, order: on.Serve) -> None:
        """Publish the state for the learners of an epoch: a copy for those that trail.

        Those that are waited for are lent the state itself where nothing but steps change it: it
        stands still as long as they are.
        """
        trails = any(pupil.trail is not None for pupil in order.learners)
        if not self._server.has_copy(order.step):
            self._server.publish(
                order.step,
                self._work.state(),
                note=str(order.committed_epoch or ""),
                fingerprint=order.fingerprint,
                on_served=lambda: self._observer.moment(Moment.SERVING, order.step),
                copied=trails or not self._work.replays,
            )
        if trails and self._server.has_copy(order.step):
            self._server.log.begin(order.lineage_term, order.step)

    def copy_step(self, live: LoggedStep) -> LoggedStep | None:
        """Return a copy of a step that is about to be applied, if a learner will want it."""
        copy = self._server.log.copy(live)
        return None if copy is None else replace(copy, numbers=numbers_of(self._work))

    def keep_step(self, applied: LoggedStep | None) -> None:
        """Serve a step that was applied from here on."""
        if applied is not None:
            self._server.add(applied)

    def keep(self, steps: Collection[int] = (), *, ahead: bool = False) -> None:
        """Give back the memory of all snapshots but these; transfers of the others end.

        Gradients are kept where there are such snapshots, or ``ahead``.
        """
        self._end_ahead()
        self._server.keep(steps, ahead=ahead)
        self._tell_served()

    def _tell_served(self) -> None:
        num_bytes = self._server.num_bytes_served - self._num_bytes_told
        if num_bytes:
            self._num_bytes_told += num_bytes
            self._observer.served(num_bytes)

    def abort(self, epoch: Epoch | None, reason: str) -> None:
        """Release the training thread if it learns in ``epoch`` (None: any); from any thread."""
        with self._lock:
            if self._fetching is not None and epoch in (None, self._fetching[0]):
                self._fetching[1].cancel(reason)
            ahead = self._ahead
        if ahead is not None:
            ahead.wake()

    def learn(self, order: on.Learn) -> on.Learned | on.LearnFailed | on.Aborted:
        """Bring the work to a state that donors serve, from all of them at once."""
        self._server.keep(())  # what is served may be the very tensors that are overwritten now
        self._tell_served()
        donors = {
            str(seat.member): Address.parse(seat.data_address) for seat in order.learner.donors
        }
        trails, told = order.learner.trail is not None, set[str]()
        self._observer.learning(order.step, tuple(donors), trails=trails)

        def get(
            wanted: Wanted, into: Mapping[str, Tensor] | Room, arrived: Callable[[int], None]
        ) -> FetchReport:
            fetch = Fetch(donors, self._secret, wanted, into=into, on_bytes=arrived)
            report = self._fetch(order.epoch, fetch)
            # Of gradients a donor need not have any: it may have entered later.
            excused = report.left if wanted.what != "state" else frozenset()
            failed = {d: why for d, why in report.tried.items() if d not in excused}
            self._tell_tried(wanted.step, failed, told)
            return report

        lesson = Lesson(
            order, self._work, observer=self._observer, get=get, ahead=self._take_ahead(order)
        )
        try:
            learned = lesson.take()
        except ExchangeAborted as aborted:
            return on.Aborted(order.epoch, aborted.reason, held=lesson.held)
        except NOT_TO_BE_HAD as failed:
            if isinstance(failed, TransferFailed):
                self._tell_tried(order.step, failed.tried, told)
            return on.LearnFailed(order.epoch, str(failed), lesson.held)
        finally:
            self._end_ahead()
        self._lesson_s = lesson.fetched_s or self._lesson_s
        if trails:
            self._look_ahead(order, donors, learned.step)
        return learned

    # -- ahead ----------------------------------------------------------------------------------

    def _look_ahead(self, order: on.Learn, donors: Mapping[str, Address], step: int) -> None:
        """Fetch what the members do after ``step``, for when they wait for this process."""

        def make(
            wanted: Wanted, into: Mapping[str, Tensor], arrived: Callable[[int], None]
        ) -> Fetch:
            return Fetch(donors, self._secret, wanted, into=into, on_bytes=arrived)

        with self._lock:
            self._ahead = StepsAhead(step, shape_of(order, self._work), make)

    def _take_ahead(self, order: on.Learn) -> TakeAhead:
        """Return what gives out steps that were fetched ahead, if they lead on from what is held.

        Waiting for one ends with the epoch at the latest (Q-5).
        """
        ahead, held_step = self._ahead, order.held_step
        if ahead is None or held_step is None:
            return take_nothing
        if not ahead.leads_from(held_step, order.lineage_term):
            return take_nothing

        def take(step: int, last: int, arrived: Callable[[int], None]) -> Fetched | None:
            def look(num_bytes: int) -> None:
                if (reason := self._aborted(order.epoch)) is not None:
                    raise ExchangeAborted(reason)
                arrived(num_bytes)

            return ahead.take(step, last, look)

        return take

    def _end_ahead(self) -> None:
        with self._lock:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.end()

    def _fetch(self, epoch: Epoch, fetch: Fetch) -> FetchReport:
        """Run a transfer that ends with its epoch at the latest (Q-5)."""
        with self._lock:
            self._fetching = epoch, fetch
        if (reason := self._aborted(epoch)) is not None:
            fetch.cancel(reason)
        try:
            return fetch.run(Deadline.after(LEARN_LIMIT_S))
        finally:
            with self._lock:
                self._fetching = None

    def _tell_tried(self, step: int, tried: dict[str, str], told: set[str]) -> None:
        """Tell of each donor that failed a learner, once."""
        for donor, why in tried.items():
            if donor not in told:
                told.add(donor)
                self._observer.donor_failed(step, donor, why)
