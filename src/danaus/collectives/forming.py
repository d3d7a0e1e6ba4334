"""Connects every pair of members of an epoch: one dials, the other waits, both confirm.

Owns the time between an announcement and a group that can be used.  Of each pair the member
that comes later in the order of names dials; the other answers with a welcome once its own group
of that epoch exists, so that a formed group is known to be formed for the same epoch.

Invariants:
    Q-1: a member of an ended epoch is told so (``StaleQuorum``) and forms nothing.
    Q-5: whatever it waits for, a nudge ends the wait.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import xxhash

from danaus.collectives.dialling import CROWDED_RETRY_S, PendingDial
from danaus.collectives.lane import (
    HEADER_BYTES,
    Kind,
    pack_message,
    unpack_header,
)
from danaus.collectives.meeting import GroupHello, MeetingPoint, pack_hello
from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed, FrameDamaged, PeerLost, StaleQuorum
from danaus.core.nudge import Nudge
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.stream import Stream

_ANSWER_LIMIT_BYTES = 4096
REACH_LIMIT_S = 2.5
"""A machine that does not answer for so long is not reached: the kernel has dialled twice."""


@dataclass(frozen=True)
class Rendezvous:
    """Who meets.

    Args:
        epoch: The quorum's epoch, as ``str(Epoch)``.
        me: This process's name, as ``str(MemberId)``.
        members: Where each member process listens, this one included.
    """

    epoch: str
    me: str
    members: Mapping[str, Address]


class _Answer:
    """Reads the welcome or the refusal that a dialled peer sends, byte by byte as it comes."""

    def __init__(self, peer: str, epoch: str) -> None:
        self._peer, self._epoch = peer, epoch
        self._data = bytearray()
        self._need = HEADER_BYTES

    def advance(self, stream: Stream) -> bool:
        """Read what is there; tell whether the peer has welcomed us."""
        while len(self._data) < self._need:
            data = bytearray(self._need - len(self._data))
            try:
                count = stream.recv_into(memoryview(data))
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                raise PeerLost(self._peer, error.strerror or str(error)) from error
            if not count:
                raise PeerLost(self._peer, "it closed the connection while the group was forming")
            self._data += data[:count]
            if len(self._data) == HEADER_BYTES:
                self._need = HEADER_BYTES + self._length()
        return self._judge()

    def _length(self) -> int:
        try:
            header = unpack_header(self._data, self._peer)
        except FrameDamaged as error:
            raise PeerLost(self._peer, f"damaged message: {error.why}") from error
        if header.length > _ANSWER_LIMIT_BYTES:
            raise PeerLost(self._peer, f"damaged message: a welcome of {header.length} bytes")
        return header.length

    def _judge(self) -> bool:
        header = unpack_header(self._data, self._peer)
        payload = bytes(self._data[HEADER_BYTES:])
        if header.checksum != xxhash.xxh3_64_intdigest(payload):
            raise PeerLost(self._peer, "damaged message: the checksum of a welcome is wrong")
        if header.kind == Kind.REFUSED:
            raise StaleQuorum(f"the group as {self._peer} sees it", self._epoch, payload.decode())
        if header.kind != Kind.WELCOME or payload != self._epoch.encode():
            raise PeerLost(self._peer, "it answered with something else than a welcome")
        return True


class Forming:
    """The connections of one group while they come about.

    Args:
        rendezvous: Who meets.
        secret: The job's secret.
        meeting: Where peers that dial us arrive.
        nudge: Becomes readable when a peer arrived or the group was aborted.
        check: Called after each nudge; clears it, and raises to end the forming.

    Attributes:
        unreached: Members that could not be dialled, though they may live.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        secret: Secret,
        meeting: MeetingPoint,
        *,
        nudge: Nudge,
        check: Callable[[], None],
    ) -> None:
        self._rendezvous, self._secret, self._meeting = rendezvous, secret, meeting
        self._nudge, self._check = nudge, check
        self._dials: dict[str, PendingDial] = {}
        self._answers: dict[str, tuple[Stream, _Answer]] = {}
        self.ready: dict[str, Stream] = {}
        self.unreached: set[str] = set()
        self._reach = Deadline.after(REACH_LIMIT_S)

    def run(self, deadline: Deadline) -> dict[str, Stream]:
        """Return a connection with every other member, by name.

        Raises:
            StaleQuorum: A member is in a later epoch.
            PeerLost: A member cannot be reached or went away.
            DeadlinePassed: Not all came in time.
            ExchangeAborted: ``check`` says so.
        """
        done = False
        try:
            self._dial_all()
            while not done:
                self._check()
                self._welcome_arrivals()
                missing = set(self._rendezvous.members) - {self._rendezvous.me} - set(self.ready)
                done = not missing
                if not done:
                    self._wait(missing, deadline)
        finally:
            if not done:
                if self._reach.remaining_s() < REACH_LIMIT_S / 2:  # another failure came first
                    self.unreached |= self._unanswered()
                self._close_all()
        return self.ready

    def _unanswered(self) -> set[str]:
        """Return those whose machines have not answered yet."""
        dials = self._dials.items()
        return {name for name, dial in dials if not (dial.connected or dial.crowded)}

    def _dial_all(self) -> None:
        rendezvous = self._rendezvous
        for name in sorted(rendezvous.members):
            if name < rendezvous.me:
                hello = pack_hello(GroupHello(rendezvous.epoch, rendezvous.me, name))
                address = rendezvous.members[name]
                try:
                    self._dials[name] = PendingDial(name, address, secret=self._secret, hello=hello)
                except PeerLost:
                    self.unreached.add(name)
                    raise
        for name in list(self._dials):
            self._advance(name)

    def _advance(self, name: str) -> None:
        """Go on with the peer that we dialled."""
        dial = self._dials.get(name)
        if dial is not None and self._proven(name, dial):
            del self._dials[name]
            self._answers[name] = (dial.stream, _Answer(name, self._rendezvous.epoch))
        if name in self._answers:
            stream, answer = self._answers[name]
            if answer.advance(stream):
                del self._answers[name]
                self.ready[name] = stream

    def _proven(self, name: str, dial: PendingDial) -> bool:
        try:
            return dial.advance()
        except PeerLost:
            if not dial.connected:
                self.unreached.add(name)
            raise

    def _welcome_arrivals(self) -> None:
        epoch = self._rendezvous.epoch
        for name, stream in self._meeting.take(epoch).items():
            if (
                name not in self._rendezvous.members
                or name <= self._rendezvous.me
                or name in self.ready
            ):
                stream.close()
                continue
            self.ready[name] = stream
            try:
                stream.send([pack_message(Kind.WELCOME, epoch.encode())])
            except OSError as error:
                raise PeerLost(name, error.strerror or str(error)) from error

    def _wait(self, missing: set[str], deadline: Deadline) -> None:
        """Wait until something can go on, then let it."""
        if deadline.passed:
            raise DeadlinePassed(
                f"{', '.join(sorted(missing))} to meet in epoch {self._rendezvous.epoch}",
                deadline.limit_s,
            )
        unanswered = self._unanswered()
        if unanswered and self._reach.passed:
            self.unreached |= unanswered
            within = f"its machine has not answered within {REACH_LIMIT_S:g} s"
            raise PeerLost(", ".join(sorted(unanswered)), within)
        poller = select.poll()
        poller.register(self._nudge, select.POLLIN)
        by_fd: dict[int, str] = {}
        limit_s = deadline.remaining_s()
        if unanswered:
            limit_s = min(limit_s, self._reach.remaining_s())
        for name, dial in self._dials.items():
            if dial.crowded:
                limit_s = min(limit_s, CROWDED_RETRY_S)
            else:
                poller.register(dial, dial.interest)
                by_fd[dial.fileno()] = name
        for name, (stream, _) in self._answers.items():
            poller.register(stream, select.POLLIN)
            by_fd[stream.fileno()] = name
        crowded = [name for name, dial in self._dials.items() if dial.crowded]
        events = poller.poll(limit_s * 1000.0)
        for name in [*crowded, *(by_fd[fd] for fd, _ in events if fd in by_fd)]:
            self._advance(name)

    def _close_all(self) -> None:
        for dial in self._dials.values():
            dial.close()
        for stream, _ in self._answers.values():
            stream.close()
        for stream in self.ready.values():
            stream.close()
