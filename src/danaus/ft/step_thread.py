"""The thread on which a ``Manager``'s participant lives, beside the thread that trains.

Owns the meeting of the two: the training thread begins a step, hands over calls and asks for the
outcome; this one follows the step machine (``ft.participant``), carries the calls out in their
order, votes, and tells.  After a step that was discarded it goes on by itself, so that the next
group is formed while the training thread prepares.

Invariants:
    T-1: an outcome is told once per step: true when the machine ordered ``Apply``, false when it
    ordered ``Discard``.  Between ``Apply`` and the next step this thread waits for the optimiser.
    The first error of a step ends its calls: those that follow complete and do nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from danaus.core.clock import Deadline
from danaus.core.errors import ChannelClosed, ConfigError, DanausError, ExchangeAborted, NoQuorum
from danaus.ft.attempt import Attempt
from danaus.ft.managed_crew import ManagedCrew
from danaus.ft.observer import Observer
from danaus.ft.participant import Participant
from danaus.ft.pending import Pending
from danaus.quorum.messages import Epoch

_LOOK_S = 1.0
_ENDED = "this manager was shut down"


@dataclass(frozen=True, slots=True)
class Quorum:
    """A step's quorum as the training thread sees it."""

    step: int
    replica_ids: tuple[str, ...]
    contributors: tuple[str, ...]
    replica_rank: int
    participating_rank: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call on its way."""

    act: Callable[[], None]
    pending: Pending


class StepThread:
    """Follow the step machine on a thread of its own.

    Args:
        on_error: Told, on this thread, of the error that ended a step's calls.
        has_failed: Tells whether the step in hand has had an error.
    """

    def __init__(
        self, *, on_error: Callable[[Exception], None], has_failed: Callable[[], bool]
    ) -> None:
        self._on_error, self._has_failed = on_error, has_failed
        self._changed = threading.Condition()
        self._calls: deque[Call] = deque()
        self._quorum: Quorum | None = None
        self._refusal: str | None = None  # of a vote that is asked for; "": in favour
        self._voted = False
        self._outcome: bool | None = None
        self._applied = False
        self._ending = False
        self._participant: Participant | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="danaus manager")
        self._running: Future[None] | None = None

    # -- for the training thread ----------------------------------------------------------------

    def start(self, participant: Participant, crew: Callable[[], ManagedCrew]) -> None:
        """Begin to follow the machine."""
        self._participant, self._crew = participant, crew
        self._running = self._pool.submit(self._run, participant)
        self._running.add_done_callback(self._ended)

    def go_on(self) -> None:
        """Say that the optimiser has run, if a step was committed."""
        with self._news():
            self._applied = True

    def quorum(self, deadline: Deadline | None = None) -> Quorum:
        """Wait for the group of the step in hand.

        Raises:
            DeadlinePassed: It was not there in time; it may still come.
            DanausError: There will be none: what ended the thread.
        """
        with self._changed:
            self._wait(lambda: self._quorum is not None, "the quorum", deadline)
            assert self._quorum is not None
            return self._quorum

    def call(self, act: Callable[[], None], pending: Pending) -> None:
        """Carry ``act`` out in its turn."""
        with self._news():
            if not self._is_over():
                self._calls.append(Call(act, pending))
                return
        pending.complete()

    def outcome(self, refusal: str, deadline: Deadline | None = None) -> bool:
        """Vote on the step, after all its calls; return whether it is committed everywhere.

        Args:
            refusal: Why this process is against it; empty: it is not.
            deadline: When to give up waiting; the vote is cast all the same, and may be asked
                for again.

        Raises:
            DeadlinePassed: The outcome is not known yet.
            DanausError: It never will be: what ended the thread.
        """
        with self._changed:
            if not self._voted and self._refusal is None and self._outcome is None:
                self._refusal = refusal
                self._changed.notify_all()
            self._wait(lambda: self._outcome is not None, "the members' votes", deadline)
            outcome, self._outcome = self._outcome, None
            assert outcome is not None
            return outcome

    def end(self, leaving: str) -> None:
        """Leave the run; safe to call twice."""
        with self._news():
            self._ending = True
        if self._participant is not None:
            self._participant.leave(leaving)
            self._participant.close()
        self._pool.shutdown()

    def _wait(self, ready: Callable[[], bool], what: str, deadline: Deadline | None) -> None:
        """Wait for this thread's word; the condition is held."""
        while not ready():
            if self._is_over():
                self._raise()
            if deadline is not None:
                deadline.check(what)
            left_s = _LOOK_S if deadline is None else deadline.remaining_s()
            self._changed.wait(min(_LOOK_S, left_s))

    def _is_over(self) -> bool:
        return self._ending or self._running is None or self._running.done()

    def _raise(self) -> None:
        error = self._running.exception() if self._running and self._running.done() else None
        if error is not None and not self._ending:
            raise error
        raise ConfigError(_ENDED, "a manager that takes part")

    @contextlib.contextmanager
    def _news(self) -> Iterator[None]:
        with self._changed:
            yield
            self._changed.notify_all()

    # -- on this thread -------------------------------------------------------------------------

    def _run(self, participant: Participant) -> None:
        try:
            for attempt in participant.attempts():
                if self._crew().is_formed:  # else the next quorum is asked for at once
                    self._attempt(attempt)
        except (ExchangeAborted, ChannelClosed):
            if not self._ending:
                raise
        if not self._ending:
            raise NoQuorum(participant.left or "the run is finished", "start no step any more")

    def _attempt(self, attempt: Attempt) -> None:
        """Carry out the calls of one try of a step until its vote is asked for."""
        crew = self._crew()
        crew.begin_step()
        with self._news():
            self._quorum = Quorum(
                attempt.step,
                crew.replica_ids,
                crew.contributors,
                crew.replica_rank,
                crew.participating_rank,
            )
        while (call := self._next()) is not None:
            if not self._has_failed():
                try:
                    call.act()
                except (DanausError, RuntimeError) as error:
                    self._on_error(error)
            call.pending.complete()
        with self._changed:
            refusal, self._refusal = self._refusal, None
            self._quorum, self._voted = None, True
        if refusal:
            attempt.refuse(refusal)

    def _next(self) -> Call | None:
        """Return the next call; None: there is none, and the vote is asked for."""
        with self._changed:
            while not self._calls and self._refusal is None:
                self._check()
                self._changed.wait(_LOOK_S)
            self._check()
            return self._calls.popleft() if self._calls else None

    def committed(self) -> None:
        """Tell that the step is committed; wait until the optimiser has run."""
        with self._news():
            self._outcome, self._voted, self._applied = True, False, False
            self._changed.notify_all()
            while not self._applied:
                self._check()
                self._changed.wait(_LOOK_S)

    def discarded(self) -> None:
        """Tell that the step is discarded, if its vote was taken: it goes on without one else."""
        with self._news():
            if self._voted:
                self._outcome, self._voted = False, False

    def _check(self) -> None:
        if self._ending:
            raise ExchangeAborted(_ENDED)

    def _ended(self, _running: Future[None]) -> None:
        with self._news():
            left, self._calls = list(self._calls), deque()
        for call in left:
            call.pending.complete()


class ThreadWatch(Observer):
    """Tells of what the participant does.

    Args:
        thread: Told of steps that are discarded.
        on_restore: Told why the run goes back, before it does.
    """

    def __init__(self, thread: StepThread, on_restore: Callable[[str], None]) -> None:
        self._thread, self._on_restore = thread, on_restore

    def discarded(self, step: int, epoch: Epoch, reason: str) -> None:
        """A step was discarded; it is tried again."""
        self._thread.discarded()

    def restoring(self, step: int, reason: str) -> None:
        """The run is about to go back to ``step``."""
        self._on_restore(reason)
