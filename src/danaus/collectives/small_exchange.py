"""One small payload of each member, given to all: votes above all.

Owns the way that payloads take.  Few members send to each other at once.  Many would flood each
other with n (n - 1) messages, so theirs are gathered up a wide tree and come down it together: two
messages a member.

Invariants:
    W-3: a message that is not due, or does not hold the payloads that are due, ends its lane.
    T-1: whoever has no payload of a member was told nothing of it: a broken exchange only leaves
    out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from danaus.collectives.lane import Header, Kind, Lane, Outgoing

MOST_DIRECT = 3
FAN_OUT = 16
_NAME_BYTES = 1 << 10

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def below(place: int, num_members: int) -> range:
    """Return the places right below one in the tree of so many members."""
    first = FAN_OUT * place + 1
    return range(min(first, num_members), min(first + FAN_OUT, num_members))


def subtree(place: int, num_members: int) -> list[int]:
    """Return a place and all below it."""
    found = [place]
    for each in found:
        found += below(each, num_members)
    return found


class Way(NamedTuple):
    """Whom one member hears of whom from.

    Args:
        direct: Whether all send to each other.
        below: The peers that it hears from first, and tells last.
        above: Whom it tells in between; nobody at the top.
        expected: Whose payloads each peer's message holds.
    """

    direct: bool
    below: tuple[str, ...]
    above: str | None
    expected: Mapping[str, frozenset[str]]


@functools.lru_cache(maxsize=64)
def way(me: str, others: frozenset[str]) -> Way:
    """Return the way that small payloads take to and from ``me``; the same for all in each step."""
    order = sorted([me, *others])
    if len(order) <= MOST_DIRECT:
        return Way(True, tuple(others), None, {name: frozenset([name]) for name in others})
    place = order.index(me)
    expected = {
        order[each]: frozenset(order[at] for at in subtree(each, len(order)))
        for each in below(place, len(order))
    }
    if not place:
        return Way(False, tuple(expected), None, expected)
    above = order[(place - 1) // FAN_OUT]
    return Way(False, tuple(expected), above, {**expected, above: frozenset(order)})


class SmallExchange:
    """One exchange of small payloads, as one member takes part in it.

    Args:
        me: This member.
        lanes: The others that take part, by name.
        received: What has come, by name: this member's own at first, in the end all.
        limit_bytes: Longest payload taken.
    """

    def __init__(
        self,
        me: str,
        lanes: Mapping[str, Lane],
        received: dict[str, bytes],
        *,
        limit_bytes: int,
    ) -> None:
        self._received = received
        self._limit_bytes = (limit_bytes + _NAME_BYTES) * (len(lanes) + 1)
        self._buffers: dict[str, bytearray] = {}
        self._queued: list[Lane] = []
        self._way = way(me, frozenset(lanes))
        self._below = [lanes[name] for name in self._way.below]
        self._above = None if self._way.above is None else lanes[self._way.above]
        self._waiting = set(self._way.below)

    @property
    def lanes(self) -> list[Lane]:
        """The peers that this member exchanges messages with."""
        return self._below if self._above is None else [*self._below, self._above]

    def start(self) -> None:
        """Send what can be sent before a peer speaks."""
        if self._way.direct:
            self._send(self._below)
        elif not self._waiting:
            self._gathered()

    def take_queued(self) -> list[Lane]:
        """Return the lanes that were given a message since this was last asked."""
        queued, self._queued = self._queued, []
        return queued

    def due(self, lane: Lane) -> bool:
        return lane.peer in self._waiting

    def place(self, lane: Lane, header: Header) -> memoryview | None:
        if header.kind != Kind.SMALL or header.length > self._limit_bytes:
            raise lane.damaged(f"kind {header.kind} of {header.length} bytes is no small payload")
        buffer = self._buffers[lane.peer] = bytearray(header.length)
        return memoryview(buffer)

    def take(self, lane: Lane, header: Header) -> None:
        given = self._read(lane)
        self._waiting.discard(lane.peer)
        self._received.update(given)
        if self._way.direct:
            return
        if lane is self._above:
            self._send(self._below)
        elif not self._waiting:
            self._gathered()

    def _read(self, lane: Lane) -> dict[str, bytes]:
        due = self._way.expected[lane.peer]
        try:
            given = _decode(self._buffers.pop(lane.peer))
        except msgspec.MsgspecError as error:
            raise lane.damaged(f"no small payloads: {error}") from error
        if given.keys() != due:
            raise lane.damaged(f"payloads of {sorted(given)} where those of {sorted(due)} are due")
        return given

    def _gathered(self) -> None:
        """All of this subtree is here: pass it up, or down if this is the top."""
        if self._above is None:
            self._send(self._below)
        else:
            self._waiting.add(self._above.peer)
            self._send([self._above])

    def _send(self, lanes: list[Lane]) -> None:
        if lanes:
            payload = memoryview(_encode(self._received))
            for lane in lanes:
                lane.send(Outgoing(Kind.SMALL, 0, 0, payload))
            self._queued += lanes
