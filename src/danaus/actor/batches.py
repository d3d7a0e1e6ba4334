"""Small messages and answers that travel together, and what many of them share, said once.

Pure: which thread sends, and when, is ``links``' matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from danaus.actor.place import Place
from danaus.actor.process_messages import Deliver, DeliverMany, Route
from danaus.core.errors import FrameDamaged
from danaus.wire.frame import Buffer

SMALL_BYTES = 16 * 1024
"""What a message or an answer may hold to travel with others."""
TOGETHER = 128
"""So many messages go at once, whatever else is to come."""
ANSWERS_TOGETHER = 16
"""So many answers: the caller goes on with these while the actor is at work on the others."""

Key = tuple[str, int, int, str, str, Place]
"""Mesh, rank, incarnation, sender, endpoint, place in the call: what messages on a route share."""


class Outgoing:
    """Messages that wait to be sent over one session."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._routes: list[Route] = []
        self._messages: list[tuple[int, int, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, key: Key, args: bytes, *, call: int, numbers: Iterator[int]) -> int:
        """Add a message, with the next of ``numbers``; return how many wait.

        Ctrl-C may strike at any step of this: either both are taken or none is.
        """
        route = self._numbers.get(key)
        if route is None:
            route = len(self._numbers)
            self._routes.append(Route(route, *key))  # first: it may be named twice, not never
            self._numbers[key] = route
        # One step; once the message ends, no other number is asked for.
        self._messages.extend(zip((route,), (call,), numbers, (args,), strict=False))
        return len(self._messages)

    def take(self) -> DeliverMany:
        """Return what waits, as one message."""
        taken = DeliverMany(self._routes, self._messages)
        self._routes, self._messages = [], []
        return taken


class Incoming:
    """What the peer of one session has said of its routes.

    Args:
        peer: Whom to name in errors.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._routes: dict[int, Route] = {}

    def open(self, many: DeliverMany) -> list[tuple[Deliver, Sequence[Buffer]]]:
        """Return the messages one by one, with their parts.

        Raises:
            FrameDamaged: One goes a route that was never named.
        """
        routes = self._routes
        for route in many.routes:
            routes[route.number] = route
        opened: list[tuple[Deliver, Sequence[Buffer]]] = []
        for at, call, number, args in many.messages:
            way = routes.get(at)
            if way is None:
                raise FrameDamaged(self._peer, f"a message goes route {at}, which was never named")
            message = Deliver(
                call,
                way.mesh_id,
                way.rank,
                way.incarnation,
                way.sender,
                number,
                way.endpoint,
                way.place,
            )
            opened.append((message, (args,)))
        return opened
