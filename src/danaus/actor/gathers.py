"""The answers to one call, as they come in (A-4, A-5).

What was returned or raised comes on whichever thread reads it, all else happens on the
connections' loop.
Owns ``OneAnswer`` (one actor's, the future itself), ``Gather`` (all answers, then the future),
``StreamGather`` (a future for each) and ``PortGather`` (on to a port).  Answers are unpacked on the
thread that asks for them.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from danaus.actor.attempt import Attempt
from danaus.actor.failure import Fault
from danaus.actor.future import Future
from danaus.actor.links import Link, Parts, Pending
from danaus.actor.owned import actor_error, supervision_error
from danaus.actor.portable import packed_exception
from danaus.actor.ports import Port
from danaus.actor.process_messages import PortRaised, PortValue, Raised
from danaus.actor.targets import Options, Target
from danaus.actor.value_mesh import Outcome
from danaus.core.errors import ActorError, DanausError, DeadlinePassed
from danaus.wire.codec import unpack
from danaus.wire.reading import SharedReading

T = TypeVar("T")

Answer = Callable[[], Outcome[Any]]


class Gathering(Protocol):
    """Who waits for the answers to one call."""

    def begin(self) -> None:
        """The call is about to be sent; from any thread."""

    def point(self, at: int) -> Pending:
        """Return who waits for the answer of one point."""

    def posted(self, at: int, link: Link, call: int) -> None:
        """The message to one point was handed to its link under this number; from any thread."""


class OneAnswer(Future[Any]):
    """The answer of the only actor of a target, for as long as that lives: its own gathering.

    Args:
        target: The actor.
        what: The call, for messages.
    """

    __slots__ = ("_posted", "_target")
    any_thread = True

    def __init__(self, target: Target, what: str) -> None:
        super().__init__(what, decode=unpack)
        self._target = target
        self._posted: tuple[Link, int] | None = None

    def begin(self) -> None:
        """There is no clock."""

    def point(self, at: int) -> OneAnswer:
        """Return who waits."""
        return self

    def posted(self, at: int, link: Link, call: int) -> None:
        """Learn how the call can be cancelled."""
        self._posted = (link, call)
        if self._is_settled and isinstance(self._error, asyncio.CancelledError):
            self._give_up()

    @property
    def _reading(self) -> SharedReading | None:
        return self._posted[0].reading if self._posted is not None else None

    def returned(self, parts: Parts) -> None:
        """The endpoint returned."""
        self.set_value(parts)

    def raised(self, message: Raised, parts: Parts) -> None:
        """The endpoint raised."""
        self._decode = functools.partial(_raise, message)
        self.set_value(parts)

    def gone(self, why: str, fault: Fault | None) -> None:
        """There is no such actor any more."""
        self.set_error(supervision_error(self._target.name_of(0), why, fault))

    def cancel(self) -> bool:
        """As any future; a method, where a function kept here would keep this alive."""
        if not super().cancel():
            return False
        self._give_up()
        return True

    def _give_up(self) -> None:
        if self._posted is not None:  # else it is about to be
            link, call = self._posted
            self._target.runtime.io.post(link.cancel, call)


class Gather:
    """Collects one answer from each point.

    Args:
        target: Whom the call goes to.
        endpoint: Which endpoint.
        options: How it is made.

    Attributes:
        future: Settled with all answers, by rank.
        again: Sends the message to one point once more.
        reading: Who brings the answers, where that may be the thread that waits for them.
    """

    def __init__(self, target: Target, endpoint: str, options: Options) -> None:
        self.future: Future[Any] | None = None
        self.again: Callable[[int], None] | None = None
        self.reading: SharedReading | None = None
        self._target = target
        self._endpoint = endpoint
        self._options = options
        self._lock = threading.Lock()  # of the answers: they may come on several threads
        self._timer: asyncio.TimerHandle | None = None
        self._answers: list[Answer | None] = [None] * len(target.ranks)
        self._left = len(self._answers)
        self._posted: dict[int, tuple[Link, int]] = {}
        self._retried: dict[int, int] = {}
        self._is_cancelled = False

    def begin(self) -> None:
        """Start the clock."""
        if self._options.timeout_s is not None:
            self._target.runtime.io.post(self._start_clock, self._options.timeout_s)

    def _start_clock(self, timeout_s: float) -> None:
        if self._left and not self._is_cancelled:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)

    def point(self, at: int) -> PointPending:
        """Return who waits for the answer of one point."""
        return PointPending(self, at)

    def posted(self, at: int, link: Link, call: int) -> None:
        """Learn how the call to one point can be cancelled."""
        self.reading = self.reading or link.reading
        if self._answers[at] is None:
            self._posted[at] = (link, call)
            if self._is_cancelled:
                self._target.runtime.io.post(link.cancel, call)

    def name_of(self, at: int) -> str:
        """Return the actor's name and place."""
        return self._target.name_of(at)

    def answered(self, at: int, answer: Answer) -> None:
        """Take the answer of one point; from any thread."""
        self._posted.pop(at, None)
        with self._lock:
            if self._answers[at] is not None:
                return
            self._answers[at] = answer
            self._left -= 1
        if self._left == 0 and self._timer is not None:
            self._target.runtime.io.post(self._timer.cancel)
        self._hand_out(answer)

    def lost(self, at: int, error: DanausError) -> None:
        """One point will not answer: try again, or that is its answer."""
        if self._answers[at] is not None:
            return
        tries = self._retried.get(at, 0)
        if tries < self._options.retries and self.again is not None and not self._is_cancelled:
            self._retried[at] = tries + 1
            self._posted.pop(at, None)
            # Not from within: the link that told of it is busy telling others.
            asyncio.get_running_loop().call_soon(self.again, at)
        else:
            self.answered(at, lambda: Outcome(error=error))

    def cancel(self) -> None:
        """Give up; from any thread."""
        self._target.runtime.io.post(self._cancel_all)

    def _hand_out(self, answer: Answer) -> None:
        if self._left == 0 and self.future is not None:
            self.future.set_value(self._answers)

    def _cancel_all(self) -> None:
        self._is_cancelled = True
        if self._timer is not None:
            self._timer.cancel()
        self._cancel_posted()

    def _cancel_posted(self) -> None:
        posted, self._posted = self._posted, {}
        for link, call in list(posted.values()):  # the caller's thread may add to it still
            link.cancel(call)

    def _expire(self) -> None:
        late = list(self._posted)
        self._cancel_posted()
        limit_s = self._options.timeout_s or 0.0
        for at in late:
            self.lost(at, DeadlinePassed(f"{self.name_of(at)}.{self._endpoint}", limit_s))
        if self._left:
            self.begin()


class AllAnswers(Future[T]):
    """What is made of all answers.

    Args:
        what: The call, for messages.
        gather: Collects them.
        decode: Makes it of them.
    """

    __slots__ = ("_gather",)

    def __init__(self, what: str, gather: Gather, decode: Callable[[list[Answer]], T]) -> None:
        super().__init__(what, on_cancel=gather.cancel, decode=decode)
        self._gather = gather
        gather.future = self

    @property
    def _reading(self) -> SharedReading | None:
        return self._gather.reading


class StreamGather(Gather):
    """Settles one future with each answer, in the order of arrival.

    Args:
        target: As of ``Gather``.
        endpoint: As of ``Gather``.
        options: As of ``Gather``.
    """

    def __init__(self, target: Target, endpoint: str, options: Options) -> None:
        super().__init__(target, endpoint, options)
        name = f"{target.name}.{endpoint}"
        self.futures: Sequence[Future[Any]] = [
            Future(name, on_cancel=self._one_cancelled, decode=lambda answer: answer().get())
            for _ in self._answers
        ]
        self._turn = iter(self.futures)

    def _hand_out(self, answer: Answer) -> None:
        for future in self._turn:
            if future.set_value(answer):  # one that was cancelled leaves its turn to the next
                return

    def _one_cancelled(self) -> None:
        if all(future.done() for future in self.futures):
            self.cancel()


class PointPending:
    """Waits for one point's answer."""

    any_thread = True

    def __init__(self, gather: Gather, at: int) -> None:
        self._gather = gather
        self._at = at

    def returned(self, parts: Parts) -> None:
        """The endpoint returned."""
        self._gather.answered(self._at, lambda: _opened(parts))

    def raised(self, message: Raised, parts: Parts) -> None:
        """The endpoint raised."""
        self._gather.answered(self._at, lambda: Outcome(error=_with_cause(message, parts)))

    def gone(self, why: str, fault: Fault | None) -> None:
        """There is no such actor any more."""
        name = self._gather.name_of(self._at)
        self._gather.lost(self._at, supervision_error(name, why, fault))


class PortGather:
    """Sends each answer on to a port, with the rank that it came from.

    Args:
        target: Whom the message goes to.
        port: Where the answers go.
    """

    def __init__(self, target: Target, port: Port[Any]) -> None:
        self._target, self._port = target, port

    def begin(self) -> None:
        """There is nothing to begin."""

    def point(self, at: int) -> PortPending:
        """Return who waits for the answer of one point."""
        return PortPending(f"{self._target.name}[{at}]", self._port, at)

    def posted(self, at: int, link: Link, call: int) -> None:
        """Nobody cancels it."""


class PortPending:
    """Waits for one point's answer on behalf of a port."""

    any_thread = False

    def __init__(self, name: str, port: Port[Any], rank: int) -> None:
        self._name, self._port, self._rank = name, port, rank

    def returned(self, parts: Parts) -> None:
        """The endpoint returned."""
        self._port.forward(PortValue(self._port.number, self._rank), parts)

    def raised(self, message: Raised, parts: Parts) -> None:
        """The endpoint raised."""
        said, text = message.exception, message.traceback
        facts = (message.actor, message.endpoint, said, text)
        self._port.forward(PortRaised(self._port.number, self._rank, False, *facts), parts)

    def gone(self, why: str, fault: Fault | None) -> None:
        """There is no such actor any more."""
        error = supervision_error(self._name, why, fault)
        message = PortRaised(self._port.number, self._rank, True, self._name, "", str(error), "")
        self._port.forward(message, packed_exception(error))


def _opened(parts: Parts) -> Outcome[Any]:
    value: Any = None
    with Attempt() as attempt:
        value = unpack(parts)
    return Outcome(value, attempt.error)


def _raise(message: Raised, parts: Parts) -> NoReturn:
    raise _with_cause(message, parts)


def _with_cause(message: Raised, parts: Parts) -> ActorError:
    error = actor_error(message)
    if parts:
        with Attempt():
            error.__cause__ = unpack(parts)
    return error
