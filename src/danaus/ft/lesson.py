"""How a learner comes to the members' state: all of it at once, or by applying what they applied.

Owns ``Lesson``: which transfers it takes, in which order, and what is done with what they bring.
Bytes and their checks are ``ft.transfer``'s, who may serve them ``ft.healing``'s.

Invariants:
    H-1: a step is applied only to the state before it, in the order of steps, of one lineage.
    What comes of it is compared by the members' service when the learner asks again.
    P-3: the learner's position moves with each part that arrives and each step that is applied.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from danaus.core.errors import DeadlinePassed, StaleQuorum, TransferFailed
from danaus.ft.manifest import Wanted
from danaus.ft.observer import Moment, Observer
from danaus.ft.step_events import Learn, Learned
from danaus.ft.step_log import LoggedStep
from danaus.ft.steps_ahead import Fetched, StepShape, fetch_steps
from danaus.ft.transfer import FetchReport, Room
from danaus.ft.work import Tuned, Work, numbers_of
from danaus.quorum.messages import Epoch
from danaus.wire.position import Phase

NEAR_STEPS = 1
"""A learner that is so few steps behind asks to enter; the members wait while it takes those."""

BATCH_BYTES = 64 << 20
BATCH_STEPS = 64
NOT_TO_BE_HAD = (TransferFailed, StaleQuorum, DeadlinePassed)

Get = Callable[[Wanted, Mapping[str, Tensor] | Room, Callable[[int], None]], FetchReport]
TakeAhead = Callable[[int, int, Callable[[int], None]], Fetched | None]


@runtime_checkable
class Roomy(Protocol):
    """A ``Work`` whose state has not the same tensors before it has learned as after."""

    @property
    def room(self) -> Room:
        """Makes the tensors that a transfer fills; ``loaded`` tells that they are."""
        ...


class Lesson:
    """One learner's way to a state; ``take`` it once.

    Args:
        order: What it is to learn.
        work: Holds the state.
        observer: Told of moments and of what was learned.
        get: Fetches what is wanted into tensors, from all donors at once; called with each number
            of bytes that arrived.
        ahead: Gives out steps that were fetched ahead (``StepsAhead.take``).
    """

    def __init__(
        self,
        order: Learn,
        work: Work,
        *,
        observer: Observer,
        get: Get,
        ahead: TakeAhead | None = None,
    ) -> None:
        self._order, self._work, self._observer, self._get = order, work, observer, get
        self._ahead = ahead or take_nothing
        self._trails = order.learner.trail is not None
        self._step = order.step
        self._committed: Epoch | None = None
        self._is_whole = False
        self._num_parts = 0
        self._num_bytes: dict[str, int] = {}
        self._started = time.monotonic()
        self.fetched_s = 0.0
        """What it took to fetch a whole state; 0: none was."""

    def take(self) -> Learned:
        """Learn.

        Raises:
            TransferFailed: No donor could serve.
            StaleQuorum: All have left what is wanted behind.
            DeadlinePassed: It took too long.
            ExchangeAborted: It is not to go on.
        """
        began = self._order.held_step
        if began is None or not self._lead_on(began):
            self._fetch_state()
            began = None
        if self._trails:
            self._follow(self._step if began is None else began)
        elif began is not None:
            self._tell_caught_up(began)
        return self._learned()

    @property
    def held(self) -> Learned | None:
        """The committed state that there is where it was broken off; None: it is overwritten."""
        return self._learned() if self._is_whole else None

    def _learned(self) -> Learned:
        return Learned(self._order.epoch, self._step, self._work.fingerprint(), self._committed)

    # -- the whole state ----------------------------------------------------------------------

    def _fetch_state(self) -> None:
        order = self._order
        self._step, self._is_whole = order.step, False
        into = self._work.room if isinstance(self._work, Roomy) else self._work.state()
        report = self._get(Wanted(order.step), into, self._arrived)
        self._work.loaded(order.step)
        self._committed, self._is_whole = _epoch(report.note), True
        self.fetched_s = time.monotonic() - self._started
        self._observer.learned(order.step, report.bytes_by_donor, self.fetched_s)

    # -- step by step -------------------------------------------------------------------------

    def _lead_on(self, held_step: int) -> bool:
        """Begin with the state that is held; tell whether it leads to the one that is taught."""
        self._step, self._committed, self._is_whole = held_step, self._order.held_epoch, True
        if held_step > self._order.step:
            return True  # it has trailed before
        if not self._work.replays:
            return False
        try:
            while self._step < self._order.step:
                self._apply_up_to(self._order.step)
            theirs = self._get(Wanted(self._order.step, "print"), {}, self._arrived).fingerprint
        except NOT_TO_BE_HAD:
            return False
        return not theirs or theirs == self._work.fingerprint()

    def _follow(self, began: int) -> None:
        """Apply what the members apply, until that brings the learner no nearer."""
        left = math.inf
        while (behind := self._newest() - self._step) > NEAR_STEPS and behind < left:
            left = behind
            self._apply_up_to(self._step + behind)
        self._tell_caught_up(began)

    def _newest(self) -> int:
        wanted = Wanted(self._step, "newest", self._order.lineage_term)
        return int(self._get(wanted, {}, self._arrived).note)

    def _apply_up_to(self, last: int) -> None:
        """Apply what was fetched ahead; else fetch as many as are good to have at once."""
        if (known := self._ahead(self._step + 1, last, self._arrived)) is None:
            shape = shape_of(self._order, self._work)
            most = max(1, min(BATCH_STEPS, BATCH_BYTES // (4 * shape.num_elements)))
            first, last = self._step + 1, min(last, self._step + most)
            known = fetch_steps(self._get_steps, shape, first=first, last=last)
        for donor, num_bytes in known.bytes_by_donor.items():
            self._num_bytes[donor] = self._num_bytes.get(donor, 0) + num_bytes
        for each in known.steps:
            self._apply(each)

    def _get_steps(self, wanted: Wanted, into: Mapping[str, Tensor]) -> FetchReport:
        return self._get(wanted, into, self._arrived)

    def _apply(self, logged: LoggedStep) -> None:
        if isinstance(self._work, Tuned):
            self._work.tune(logged.numbers)
        self._work.apply(logged.step, logged.gradient, logged.measures)
        self._step, self._committed = logged.step, logged.epoch
        self._observer.moment(Moment.REPLAYED, logged.step)
        self._arrived(0)

    # -- who watches --------------------------------------------------------------------------

    def _arrived(self, num_bytes: int) -> None:
        self._num_parts += 1
        self._observer.entered(self._step, Phase.LEARN, self._num_parts)
        if num_bytes:
            self._observer.moment(Moment.LEARNING, self._step)

    def _tell_caught_up(self, began: int) -> None:
        duration_s = time.monotonic() - self._started
        self._observer.caught_up(
            self._step,
            self._step - began,
            num_bytes_by_donor=self._num_bytes,
            duration_s=duration_s,
        )


def take_nothing(_step: int, _last: int, _arrived: Callable[[int], None]) -> Fetched | None:
    """Give out nothing: no step was fetched ahead."""
    return None


def shape_of(order: Learn, work: Work) -> StepShape:
    """Return what a step is to a learner."""
    num_ranks = order.learner.seat.num_ranks
    num_numbers = len(numbers_of(work))
    return StepShape(order.lineage_term, work.num_gradient_elements, num_ranks, num_numbers)


def _epoch(text: str) -> Epoch | None:
    term, _, n = text.partition(".")
    return Epoch(int(term), int(n)) if n else None
