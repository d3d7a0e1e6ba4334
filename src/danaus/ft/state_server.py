"""Serves committed steps to learners, beside the training (H-1, H-2).

Owns one thread that moves bytes to sockets: of snapshots, and of the steps applied after one, which
``log`` keeps.  The learner's end is ``transfer``.

Invariants:
    H-2: a learner gets the bytes of one committed step; once ``withdraw`` has returned, no byte
    of that snapshot is read any more.
    W-2: learners are proven by the listener before a word of theirs is read.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from danaus.collectives.lane import Header, Kind, Lane, Outgoing, pack_message
from danaus.collectives.meeting import HelloSource
from danaus.core.clock import Clock, MonotonicClock
from danaus.core.errors import FrameDamaged, InternalError, PeerLost
from danaus.core.nudge import Nudge
from danaus.ft.manifest import HELLO_PREFIX, Manifest, Wanted, pack_manifest, unpack_hello
from danaus.ft.snapshot import Snapshot, SnapshotRoom
from danaus.ft.step_log import LoggedStep, StepLog
from danaus.wire.stream import Stream

# How long a learner that asks for a step behind the newest one may wait for it: a run that has
# just gone back to a checkpoint publishes that step any moment.
PATIENCE_S = 1.0
_QUEUE_LIMIT = 256
_RELEASE_LIMIT_S = 5.0


@dataclass(frozen=True)
class Published:
    """What ``publish`` did.

    Args:
        step: The committed step.
        num_bytes: Bytes of its state.
        copied: False if there was no room: the tensors must stay as they are until ``withdraw``
            (the donor pauses at the boundary).
    """

    step: int
    num_bytes: int
    copied: bool


class _Learner:
    """One learner's connection; as a lane's exchange, it takes requests."""

    def __init__(self, lane: Lane, snapshot: Snapshot) -> None:
        self.lane, self.snapshot = lane, snapshot
        self.interest = 0
        self._served = False
        lane.number = snapshot.step & 0xFFFFFFFF
        manifest = memoryview(pack_manifest(snapshot.manifest))
        lane.send(Outgoing(Kind.MANIFEST, 0, 0, manifest))

    def due(self, lane: Lane) -> bool:
        return lane.num_waiting < _QUEUE_LIMIT

    def place(self, lane: Lane, header: Header) -> memoryview | None:
        if header.kind != Kind.WANT or header.length:
            raise lane.damaged(f"kind {header.kind} is no request")
        if header.piece + header.slot > len(self.snapshot.chunks):
            asked = f"{header.slot} chunks from number {header.piece}"
            raise lane.damaged(f"{asked} of {len(self.snapshot.chunks)}")
        return memoryview(bytearray())

    def take(self, lane: Lane, header: Header) -> None:
        for index in range(header.piece, header.piece + header.slot):
            lane.send(Outgoing(Kind.CHUNK, 0, index, self.snapshot.chunk_bytes(index)))
        if not self._served:
            self._served = True
            if self.snapshot.on_served is not None:
                self.snapshot.on_served()


class StateServer:
    """One per process.

    Args:
        listener: Where learners dial (``wire.blocking.PeerListener``); stays the caller's.
        room_bytes: Memory for copies; a quarter of what is free now, unless given.
    """

    def __init__(
        self,
        listener: HelloSource,
        *,
        room_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._listener = listener
        self._clock = clock or MonotonicClock()
        self._room = SnapshotRoom(room_bytes)
        self.log = StepLog(self._room)
        self._lock = threading.Lock()  # guards what follows
        self._nudge = Nudge()  # closed: the thread has ended
        self._snapshots: dict[int, Snapshot] = {}
        self._ended: list[Snapshot] = []
        self._newest = -1
        self._arrived: list[tuple[Stream, Wanted, float]] = []
        self._closed = False
        self._num_bytes_gone = 0
        self._learners: dict[int, _Learner] = {}  # the thread's own
        self._thread = threading.Thread(target=self._run, name="danaus state", daemon=True)
        self._thread.start()
        listener.on_hello(HELLO_PREFIX, self._on_hello)

    # -- for the participant ------------------------------------------------------------------

    @property
    def room_bytes(self) -> int:
        """Memory that copies may take."""
        return self._room.room_bytes

    @property
    def free_bytes(self) -> int:
        """How much of it is not in use."""
        return self._room.free_bytes

    def has_copy(self, step: int) -> bool:
        """Tell whether a copy of a step's state is served."""
        with self._lock:
            known = self._snapshots.get(step)
        return known is not None and known.buffer is not None

    @property
    def num_bytes_served(self) -> int:
        """Bytes sent to learners since the start."""
        return self._num_bytes_gone + sum(
            each.lane.num_bytes_sent for each in list(self._learners.values())
        )

    def publish(
        self,
        step: int,
        named: Mapping[str, Tensor],
        *,
        note: str = "",
        fingerprint: str = "",
        on_served: Callable[[], None] | None = None,
        copied: bool = True,
    ) -> Published:
        """Serve a committed step from here on; one published before under this number ends.

        Args:
            step: The committed step.
            named: Its state; of sharded tensors the local shard is served.
            note: Handed to the learner with the state.
            fingerprint: Of this state (Q-9); donors of one transfer must agree on it.
            on_served: Called, from another thread, when a learner was given its first bytes.
            copied: False: the tensors stay as they are until ``withdraw``.
        """
        self.withdraw(step)
        # Copying takes a while: others are served, and peers accepted, meanwhile.
        snapshot = self._room.take(
            named, step, note=note, fingerprint=fingerprint, on_served=on_served, copied=copied
        )
        with self._lock:
            self._snapshots[step] = snapshot
            self._newest = max(self._newest, step)
            self._wake()
        num_bytes = sum(facts.num_bytes for facts in snapshot.manifest.tensors)
        return Published(step, num_bytes, snapshot.buffer is not None)

    def add(self, applied: LoggedStep) -> None:
        """Keep a step that was applied, if there is a learner to keep it for."""
        self.log.add(applied)
        with self._lock:
            self._wake()

    def keep(self, steps: Collection[int], *, ahead: bool = False) -> None:
        """Stop serving all states but copies of these.

        Where there are none, and nobody is expected, the steps after them are not kept either.
        """
        with self._lock:
            lent = [step for step, each in self._snapshots.items() if each.buffer is None]
            others = [step for step in self._snapshots if step in lent or step not in steps]
        if not steps and not ahead:
            self.log.end()
        self.withdraw(*others)

    def withdraw(self, *steps: int) -> None:
        """Stop serving the states of some steps; transfers of them end.

        Raises:
            InternalError: The serving thread did not let go of one.
        """
        with self._lock:
            ended = [self._snapshots.pop(each) for each in steps if each in self._snapshots]
            self._ended += ended
            serving = bool(ended) and self._wake()
        for snapshot in ended:
            if serving and not snapshot.released.wait(_RELEASE_LIMIT_S):
                raise InternalError("H-2", f"step {snapshot.step} is still being read")
            self._room.give_back(snapshot)

    def close(self) -> None:
        """End all transfers and the thread; may be called twice."""
        self._listener.on_hello(HELLO_PREFIX, None)
        with self._lock:
            self._closed = True
            self._wake()
        self._thread.join(_RELEASE_LIMIT_S)

    def _wake(self) -> bool:
        """Have the thread look, under the lock; return False where it has ended."""
        return self._nudge.give()

    # -- on the thread ------------------------------------------------------------------------

    def _on_hello(self, stream: Stream, hello: bytes) -> None:
        """Take a learner from the listener's thread."""
        try:
            wanted = unpack_hello(hello)
        except FrameDamaged:
            stream.close()
            return
        with self._lock:
            if not self._closed:
                self._arrived.append((stream, wanted, self._clock.now() + PATIENCE_S))
                self._wake()
                return
        stream.close()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._nudge, select.POLLIN)
        while not self._closed:
            limit_ms = self._turn(poller)
            for fd, event in poller.poll(limit_ms):
                if fd == self._nudge.fileno():
                    self._nudge.take()
                elif fd in self._learners:
                    self._serve(self._learners[fd], event, poller)
        for learner in list(self._learners.values()):
            self._drop(learner, poller)
        with self._lock:
            self._nudge.close()
        self._let_go(poller)
        for stream, _, _ in self._arrived:
            stream.close()

    def _turn(self, poller: select.poll) -> float | None:
        """Do what others asked for; return how long to wait at most, in milliseconds."""
        self._let_go(poller)
        waiting: list[tuple[Stream, Wanted, float]] = []
        with self._lock:
            arrived, self._arrived = self._arrived, []
            newest = self._newest
        now = self._clock.now()
        for stream, wanted, patient_until in arrived:
            if (found := self._find(wanted)) is not None:
                self._begin(stream, found, poller)
            elif self._may_come(wanted, newest) or (
                now < patient_until and not self._is_gone(wanted)
            ):
                waiting.append((stream, wanted, patient_until))
            else:
                _refuse(stream, wanted, newest)
        with self._lock:
            self._arrived = waiting + self._arrived
        soonest = [until for _, wanted, until in waiting if not self._may_come(wanted, newest)]
        return max(0.0, min(soonest) - now) * 1000.0 + 1.0 if soonest else None

    def _find(self, wanted: Wanted) -> Snapshot | None:
        """Return what is asked for, if it is here."""
        if wanted.what == "steps":
            return self.log.offer(wanted.lineage_term, wanted.step, wanted.last)
        if wanted.what == "newest":
            newest = self.log.newest(wanted.lineage_term)
            return None if newest is None else _words(wanted, note=str(newest))
        with self._lock:
            known = self._snapshots.get(wanted.step)
        if known is None or wanted.what == "state":
            return known
        return _words(wanted, fingerprint=known.manifest.fingerprint)

    def _may_come(self, wanted: Wanted, newest: int) -> bool:
        """Tell whether what is not here is of a step that this process has not come to."""
        return wanted.what in ("state", "print") and wanted.step > newest

    def _is_gone(self, wanted: Wanted) -> bool:
        """Tell whether steps that are asked for were dropped, or are of another lineage."""
        if wanted.what not in ("steps", "newest"):
            return False
        newest = self.log.newest(wanted.lineage_term)
        return newest is None or (wanted.what == "steps" and wanted.last <= newest)

    def _let_go(self, poller: select.poll) -> None:
        """End the transfers of withdrawn snapshots."""
        with self._lock:
            ended, self._ended = self._ended, []
        for snapshot in ended:
            for learner in [e for e in self._learners.values() if e.snapshot is snapshot]:
                self._drop(learner, poller)
            snapshot.released.set()

    def _begin(self, stream: Stream, snapshot: Snapshot, poller: select.poll) -> None:
        learner = _Learner(Lane("a learner", stream), snapshot)
        self._learners[stream.fileno()] = learner
        self._serve(learner, 0, poller)

    def _serve(self, learner: _Learner, event: int, poller: select.poll) -> None:
        lane = learner.lane
        try:
            go_on = True
            while go_on:
                while learner.due(lane) and lane.pull(learner):
                    pass
                lane.push()
                go_on = lane.pending and learner.due(lane)
        except PeerLost:
            self._drop(learner, poller)
            return
        if event & (select.POLLERR | select.POLLNVAL):
            self._drop(learner, poller)
            return
        wanted = (select.POLLIN if learner.due(lane) else 0) | (
            select.POLLOUT if lane.wants_to_send else 0
        )
        if wanted != learner.interest:
            learner.interest = wanted
            poller.register(lane, wanted)

    def _drop(self, learner: _Learner, poller: select.poll) -> None:
        if learner.interest:
            poller.unregister(learner.lane)
        del self._learners[learner.lane.fileno()]
        self._num_bytes_gone += learner.lane.num_bytes_sent
        learner.lane.close()


def _words(wanted: Wanted, *, note: str = "", fingerprint: str = "") -> Snapshot:
    """Return an answer that holds no tensors."""
    return Snapshot(Manifest(wanted.step, fingerprint, note, ()), [], None, on_served=None)


def _refuse(stream: Stream, wanted: Wanted, newest: int) -> None:
    """Tell a learner that its step has passed; never waits for it."""
    with stream:
        try:
            number = wanted.step & 0xFFFFFFFF
            stream.send([pack_message(Kind.REFUSED, str(newest).encode(), number=number)])
        except OSError:
            pass  # it does not listen
