"""Serves snapshots of committed steps to learners, beside the training (H-1, H-2).

Owns one thread that moves bytes from snapshots to sockets; the learner's end is ``transfer``.

Invariants:
    H-2: a learner gets the bytes of one committed step; once ``withdraw`` has returned, no byte
    of that snapshot is read any more.
    W-2: learners are proven by the listener before a word of theirs is read.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from danaus.collectives.lane import Header, Kind, Lane, Outgoing, pack_message
from danaus.collectives.meeting import HelloSource
from danaus.core.clock import Clock, MonotonicClock
from danaus.core.errors import FrameDamaged, InternalError, PeerLost
from danaus.ft.manifest import HELLO_PREFIX, pack_manifest, unpack_hello
from danaus.ft.snapshot import Snapshot, SnapshotRoom
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
        if header.piece >= len(self.snapshot.chunks):
            raise lane.damaged(f"chunk {header.piece} of {len(self.snapshot.chunks)}")
        return memoryview(bytearray())

    def take(self, lane: Lane, header: Header) -> None:
        payload = self.snapshot.chunk_bytes(header.piece)
        lane.send(Outgoing(Kind.CHUNK, 0, header.piece, payload))
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
        self._nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # guards what follows
        self._snapshots: dict[int, Snapshot] = {}
        self._ended: list[Snapshot] = []
        self._newest = -1
        self._arrived: list[tuple[Stream, int, float]] = []
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
    ) -> Published:
        """Serve a committed step from here on; one published before under this number ends.

        Args:
            step: The committed step.
            named: Its state; of sharded tensors the local shard is served.
            note: Handed to the learner with the state.
            fingerprint: Of this state (Q-9); donors of one transfer must agree on it.
            on_served: Called, from another thread, when a learner was given its first bytes.
        """
        self.withdraw(step)
        # Copying takes a while: others are served, and peers accepted, meanwhile.
        snapshot = self._room.take(
            named, step, note=note, fingerprint=fingerprint, on_served=on_served
        )
        with self._lock:
            self._snapshots[step] = snapshot
            self._newest = max(self._newest, step)
        os.eventfd_write(self._nudge, 1)
        num_bytes = sum(facts.num_bytes for facts in snapshot.manifest.tensors)
        return Published(step, num_bytes, snapshot.buffer is not None)

    def withdraw(self, step: int | None = None) -> None:
        """Stop serving a step (all steps, unless given); transfers of it end.

        Raises:
            InternalError: The serving thread did not let go of it.
        """
        with self._lock:
            steps = list(self._snapshots) if step is None else [step]
            ended = [self._snapshots.pop(each) for each in steps if each in self._snapshots]
            self._ended += ended
        if ended:
            os.eventfd_write(self._nudge, 1)
        for snapshot in ended:
            if not snapshot.released.wait(_RELEASE_LIMIT_S):
                raise InternalError("H-2", f"step {snapshot.step} is still being read")
            self._room.give_back(snapshot)

    def close(self) -> None:
        """End all transfers and the thread; may be called twice."""
        self._listener.on_hello(HELLO_PREFIX, None)
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            os.eventfd_write(self._nudge, 1)
            self._thread.join(_RELEASE_LIMIT_S)

    # -- on the thread ------------------------------------------------------------------------

    def _on_hello(self, stream: Stream, hello: bytes) -> None:
        """Take a learner from the listener's thread."""
        try:
            step = unpack_hello(hello)
        except FrameDamaged:
            stream.close()
            return
        with self._lock:
            if not self._closed:
                self._arrived.append((stream, step, self._clock.now() + PATIENCE_S))
                os.eventfd_write(self._nudge, 1)
                return
        stream.close()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._nudge, select.POLLIN)
        while not self._closed:
            limit_ms = self._turn(poller)
            for fd, event in poller.poll(limit_ms):
                if fd == self._nudge:
                    os.eventfd_read(self._nudge)
                elif fd in self._learners:
                    self._serve(self._learners[fd], event, poller)
        for learner in list(self._learners.values()):
            self._drop(learner, poller)
        self._let_go(poller)
        for stream, _, _ in self._arrived:
            stream.close()
        os.close(self._nudge)

    def _turn(self, poller: select.poll) -> float | None:
        """Do what others asked for; return how long to wait at most, in milliseconds."""
        self._let_go(poller)
        waiting: list[tuple[Stream, int, float]] = []
        with self._lock:
            arrived, self._arrived = self._arrived, []
            snapshots, newest = dict(self._snapshots), self._newest
        now = self._clock.now()
        for stream, step, patient_until in arrived:
            if step in snapshots:
                self._begin(stream, snapshots[step], poller)
            elif step > newest or now < patient_until:
                waiting.append((stream, step, patient_until))
            else:
                _refuse(stream, step, newest)
        with self._lock:
            self._arrived = waiting + self._arrived
        soonest = [until for _, step, until in waiting if step <= newest]
        return max(0.0, min(soonest) - now) * 1000.0 + 1.0 if soonest else None

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


def _refuse(stream: Stream, step: int, newest: int) -> None:
    """Tell a learner that its step has passed; never waits for it."""
    with stream:
        try:
            number = step & 0xFFFFFFFF
            stream.send([pack_message(Kind.REFUSED, str(newest).encode(), number=number)])
        except OSError:
            pass  # it does not listen
