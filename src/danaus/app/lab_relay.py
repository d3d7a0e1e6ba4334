"""A process that makes a lab's way slow where the kernel cannot: it passes frames on, later.

Owns nothing but the two TAP devices that it is told of.  Frames of one direction stay in order;
what does not fit into its queue is dropped, as a router would.  It ends with the switch, whose
child it is.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES = 65536
_AT_ONCE = 64
_QUEUE_S = 1.0
_QUEUE_FRAMES = 20_000
_IDLE_S = 3600.0


@dataclass
class Direction:
    """Frames on their way from one device to the other, in order; knows no clock.

    Args:
        delay_s: What each waits, in seconds.
        jitter_s: By how much that varies, in seconds.
        bytes_per_s: How many bytes leave in a second, 0 for no limit.
    """

    delay_s: float
    jitter_s: float
    bytes_per_s: float
    num_dropped: int = 0
    _free_at: float = 0.0
    _last: float = 0.0
    _frames: deque[tuple[float, bytes]] = field(default_factory=deque)

    def take(self, frame: bytes, now: float) -> None:
        """Take a frame in, or drop it where too many wait already."""
        start = max(now, self._free_at)
        if len(self._frames) >= _QUEUE_FRAMES or start - now > _QUEUE_S:
            self.num_dropped += 1
            return
        if self.bytes_per_s:
            start = self._free_at = start + len(frame) / self.bytes_per_s
        wait = self.delay_s + random.uniform(-self.jitter_s, self.jitter_s)
        self._last = max(self._last, start + wait)
        self._frames.append((self._last, frame))

    def due(self, now: float) -> list[bytes]:
        """Return the frames whose time has come; they have left."""
        ready = []
        while self._frames and self._frames[0][0] <= now:
            ready.append(self._frames.popleft()[1])
        return ready

    @property
    def next_at(self) -> float | None:
        """When the next frame leaves, None if there is none."""
        return self._frames[0][0] if self._frames else None


def open_tap(name: str) -> int:
    """Return a descriptor of a TAP device that is there."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return device


def relay(near: int, far: int, quality: tuple[float, float, float]) -> None:
    """Pass frames on between two devices, for good."""
    ways = {near: (far, Direction(*quality)), far: (near, Direction(*quality))}
    while True:
        times = [way.next_at for _, way in ways.values()]
        waits = [at - time.monotonic() for at in times if at is not None]
        readable, _, _ = select.select([near, far], [], [], max(0.0, min([_IDLE_S, *waits])))
        for device in readable:
            _read(device, ways[device][1])
        now = time.monotonic()
        for target, way in ways.values():
            for frame in way.due(now):
                _write(target, frame)


def _read(device: int, way: Direction) -> None:
    for _ in range(_AT_ONCE):
        try:
            frame = os.read(device, _FRAME_BYTES)
        except BlockingIOError:
            return
        way.take(frame, time.monotonic())


def _write(device: int, frame: bytes) -> None:
    try:
        os.write(device, frame)
    except BlockingIOError:
        pass  # its queue is full: a frame is lost, as on any wire


def main() -> None:
    """Relay between the two devices that are named, at the quality that is given."""
    near, far, delay_s, jitter_s, bytes_per_s = sys.argv[1:]
    relay(open_tap(near), open_tap(far), (float(delay_s), float(jitter_s), float(bytes_per_s)))
