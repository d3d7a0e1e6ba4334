"""A member process's line to the quorum service.

Owns one thread with one session: it registers, beats, asks again after the service was restarted,
and hands answers to the thread that trains.  What to ask and how to follow an answer is decided
by ``ft.step``.

An ask that was sent again over a new session has a new number: it promises the service that
nothing an older session may still have carried is followed, and sessions are read one after the
other, so that this holds.

Invariants:
    Q-6: while the service is away the member trains on; an outstanding ask is not lost.
    Every answer has an epoch above all that the ask's report knows; others are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from danaus.core.clock import Deadline
from danaus.core.errors import (
    ChannelClosed,
    DanausError,
    DeadlinePassed,
    Diverged,
    ExchangeAborted,
    FrameDamaged,
    NoQuorum,
    ServiceLost,
)
from danaus.quorum.candidates import Candidates, parse_candidates
from danaus.quorum.codecs import FROM_REPLICA, FROM_SERVICE
from danaus.quorum.messages import (
    AbortExchange,
    Announcement,
    ChangePending,
    Finding,
    FromReplica,
    FromService,
    Heartbeat,
    Join,
    Leave,
    NotLeading,
    QuorumRecord,
    Refused,
    Register,
    Released,
    Renounce,
    Seat,
    StepReport,
    Waiting,
)
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session

HEARTBEAT_S = 0.2
CLOSE_LIMIT_S = 2.0
PATIENCE_S = 10.0
"""Who waits longer for a quorum says so in its log, and why (Q-8)."""
SILENT_LIMIT_S = 5.0
"""A service that acknowledges nothing for so long is dialled anew: it may be cut off."""
_OPEN_LIMIT_S = 1.0
_LOST_LIMIT_S = 1.0
_PAUSE_S = 0.1
_LOOK_S = 1.0

_log = logging.getLogger("danaus.quorum")

OnChange = Callable[[ChangePending], None]
OnAbort = Callable[[AbortExchange], None]


@dataclass(slots=True)
class _Ask:
    """One call of ``join``; ``answer`` ends it."""

    report: StepReport
    shrink_only: bool
    answer: Announcement | Refused | Released | None = None

    def takes(self, told: Announcement, seat: Seat) -> bool:
        """Tell whether an announcement answers this ask."""
        seats = [*told.members, *(learner.seat for learner in told.learners)]
        if all(each.member != seat.member for each in seats):
            return False
        known = [self.report.seen_epoch] if self.report.seen_epoch is not None else []
        known += [self.report.last_quorum.epoch] if self.report.last_quorum is not None else []
        return all(told.epoch > epoch for epoch in known)


class QuorumClient:
    """Speaks with the quorum service for one member process.  Safe to use from any thread.

    Args:
        address: Where the service listens, or all of whom may be the service, with commas between
            them; they may come up later.
        secret: The job's secret.
        seat: Who this is, and where it is reached.
        heartbeat_s: How often to say that it is alive, in seconds.
        on_change_pending: Called when the membership is about to change (Q-2).
        on_abort: Called when what this process is blocked in must be left (Q-5).  Both are called
            from this client's thread, possibly twice, possibly before ``join`` has returned the
            quorum that they speak of; they must be quick and must not raise.

    Attributes:
        step: Steps that this member has applied; said with each heartbeat, for people.
    """

    def __init__(
        self,
        address: Address | str,
        secret: Secret,
        seat: Seat,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        on_change_pending: OnChange | None = None,
        on_abort: OnAbort | None = None,
    ) -> None:
        self._candidates = Candidates(parse_candidates(str(address)))
        self._secret, self._seat, self._heartbeat_s = secret, seat, heartbeat_s
        self._on_change_pending, self._on_abort = on_change_pending, on_abort
        self.step = 0
        self._changed = threading.Condition()
        self._ask: _Ask | None = None
        self._number = 0
        self._standing: QuorumRecord | None = None
        self._leaves = self._disbanded = ""
        self._away, self._away_since = "not reached yet", time.monotonic()
        self._waiting = ""
        self._ended = False
        self._session: Session | None = None
        self._holder = ""
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="quorum client", daemon=True)
        self._thread.start()

    # -- for the thread that trains ---------------------------------------------------------------

    def join(
        self, report: StepReport, deadline: Deadline | None = None, *, shrink_only: bool = False
    ) -> Announcement | Released:
        """Ask for the next quorum and wait for it, or to be let go after ``leave``.

        Args:
            report: What this member says of itself; joining promises no vote in an older epoch.
            deadline: None: wait for as long as the service says that waiting helps.
            shrink_only: Ask that no newcomer be admitted.

        Raises:
            NoQuorum: There will be none for this process.
            Diverged: Replicas disagree, and replaying did not help or is not wanted.
            ServiceLost: The deadline passed without the service being reached.
            DeadlinePassed: The deadline passed; says what was waited for.
            ExchangeAborted: ``disband`` was called.
        """
        ask = _Ask(report, shrink_only)
        with self._changed:
            self._ask, self._waiting = ask, ""
        self._call(self._send_ask)
        patience = Deadline.after(PATIENCE_S)
        with self._changed:
            try:
                while ask.answer is None:
                    self._check(deadline)
                    if patience.passed and not self._away:
                        _log.warning("%s waits: %s", self._seat.member, self._reason())
                        patience = Deadline.after(PATIENCE_S)
                    limit_s = _LOOK_S if deadline is None else deadline.remaining_s()
                    self._changed.wait(min(_LOOK_S, limit_s))
            finally:
                if self._ask is ask:
                    self._ask = None
        if isinstance(ask.answer, Refused):
            raise _error_of(ask.answer)
        return ask.answer

    def reach(self, deadline: Deadline) -> None:
        """Wait until there is a session with the service.

        Raises:
            ServiceLost: The deadline passed before.
        """
        with self._changed:
            while self._away:
                self._check(deadline)
                self._changed.wait(min(_LOOK_S, deadline.remaining_s()))

    def leave(self, reason: str) -> None:
        """Ask to be left out of the next quorum (drain); the step in hand is finished first.

        ``join`` returns ``Released`` then.  A service that is away is told once it is back.
        """
        self._leaves = self._leaves or reason or "it was asked to"
        self._call(self._say_leaves)

    def disband(self, reason: str) -> None:
        """End every wait in ``join``, now and later: this name is to be given up (H-3)."""
        with self._news():
            self._disbanded = reason

    def tell(self, message: Finding | Renounce) -> None:
        """Tell it once; lost while the service is away."""
        self._call(lambda: self._say(message))

    def close(self) -> None:
        """End the thread and the session; who waits in ``join`` is told so."""
        self._call(self._closing.set)
        self._thread.join(CLOSE_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- between the threads ----------------------------------------------------------------------

    def _call(self, action: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: ``_check`` says so
            self._loop.call_soon_threadsafe(action)

    def _check(self, deadline: Deadline | None) -> None:
        if self._ended:
            raise ChannelClosed(str(self._candidates), "this quorum client was closed")
        if self._disbanded:
            raise ExchangeAborted(self._disbanded)
        if deadline is None or not deadline.passed:
            return
        if self._away:
            raise ServiceLost(str(self._candidates), deadline.limit_s, self._away)
        raise DeadlinePassed(f"a quorum ({self._reason()})", deadline.limit_s)

    def _reason(self) -> str:
        if self._away:
            away_s = time.monotonic() - self._away_since
            where = f"the quorum service at {self._candidates}"
            return f"cut off from {where} for {away_s:.1f} s: {self._away}"
        return self._waiting or "the quorum service has not answered yet"

    @contextlib.contextmanager
    def _news(self) -> Iterator[None]:
        with self._changed:
            yield
            self._changed.notify_all()

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        finally:
            with self._news():
                self._ended = True

    async def _live(self) -> None:
        """Keep a session with the service until the client is closed."""
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(self._beat())
            following = tasks.create_task(self._follow())
            await self._closing.wait()
            beating.cancel()
            following.cancel()

    async def _follow(self) -> None:
        while True:
            pause = Deadline.after(_PAUSE_S)  # a service that hangs up at once is not flooded
            try:
                session = await open_session(
                    self._candidates.current,
                    self._secret,
                    lost_limit_s=_LOST_LIMIT_S,
                    open_limit_s=_OPEN_LIMIT_S,
                )
            except DanausError as error:
                self._gone(str(error))
            else:
                await self._speak(session)
            self._candidates.turn(self._holder)
            self._holder = ""
            await asyncio.sleep(pause.remaining_s())

    async def _speak(self, session: Session) -> None:
        """Take part in one session until it ends."""
        try:
            self._begin(session)
            await self._listen(session)
        except (ChannelClosed, FrameDamaged) as error:
            self._gone(error.why)
        finally:
            self._session = None
            await session.close()

    def _begin(self, session: Session) -> None:
        """Say who speaks, and ask again what is not answered."""
        self._session = session
        session.on_disconnect = self._gone
        session.on_reconnect = self._back
        self._back()
        self._say(Register(self._seat, self._standing))
        self._say_leaves()
        self._send_ask()

    async def _listen(self, session: Session) -> None:
        async for parts in session:
            self._hear(FROM_SERVICE.decode(parts[0], session.peer))
        if not self._away:  # else it said why
            self._gone("the service closed the session")

    async def _beat(self) -> None:
        said = Deadline.after(PATIENCE_S)
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if said.passed and self._say_cut_off():
                said = Deadline.after(PATIENCE_S)
            if self._session is not None and self._session.unanswered_s > SILENT_LIMIT_S:
                self._session.end(f"no answer for {self._session.unanswered_s:.1f} s")
            standing = self._standing.epoch if self._standing is not None else None
            if self._session is not None and self._session.is_connected:
                self._say(Heartbeat(self._seat.member, standing, self.step))

    def _say_cut_off(self) -> bool:
        """Tell in the log of a service that is out of reach for long; tell whether it is."""
        with self._changed:
            if not self._away or time.monotonic() - self._away_since < PATIENCE_S:
                return False
            reason, asks = self._reason(), self._ask is not None
        what = "waiting" if asks else "the quorum stands, and all of it must be reached to go on"
        _log.warning("%s is %s; %s", self._seat.member, reason, what)
        return True

    def _say(self, message: FromReplica) -> None:
        if self._session is not None:
            with contextlib.suppress(ChannelClosed):
                self._session.send([FROM_REPLICA.encode(message)])

    def _say_leaves(self) -> None:
        if self._leaves:
            self._say(Leave(self._seat.member, self._leaves))

    def _send_ask(self) -> None:
        with self._changed:
            ask = self._ask
        if ask is not None and ask.answer is None and self._session is not None:
            self._number += 1
            self._say(Join(self._seat, ask.report, self._number, ask.shrink_only))

    def _gone(self, why: str) -> None:
        with self._news():
            if not self._away:
                self._away_since = time.monotonic()
            self._away = why or "the session ended"

    def _back(self) -> None:
        with self._news():
            self._away = ""

    def _hear(self, message: FromService) -> None:
        match message:
            case Announcement():
                self._announced(message)
            case Refused() | Released():
                with self._news():
                    if self._ask is not None:
                        self._ask.answer = message
            case Waiting():
                with self._news():
                    self._waiting = message.reason
            case ChangePending():
                if self._on_change_pending is not None:
                    self._on_change_pending(message)
            case AbortExchange():
                if self._on_abort is not None:
                    self._on_abort(message)
            case NotLeading():
                self._holder = message.holder
                self._gone(message.reason)

    def _announced(self, told: Announcement) -> None:
        """Take an announcement that answers the ask; nobody waits for any other."""
        with self._news():
            ask = self._ask
            if ask is not None and ask.answer is None and ask.takes(told, self._seat):
                ask.answer = told
                self._standing = told.record()


def _error_of(refused: Refused) -> NoQuorum | Diverged:
    if refused.diverged:
        return Diverged(refused.step, dict(refused.diverged), refused.reason)
    return NoQuorum(refused.reason, refused.to_do)
