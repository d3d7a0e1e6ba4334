"""Small messages and answers that travel together, and what many of them share, said once.

Pure: which thread sends, and when, is ``links``' matter.
"""

from __future__ import annotations

from collections.abc import Sequence

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

    def add(self, key: Key, args: bytes, *, call: int, number: int) -> int:
        """Add a message; return how many wait."""
        route = self._numbers.get(key)
        if route is None:
            route = self._numbers[key] = len(self._numbers)
            self._routes.append(Route(route, *key))
        self._messages.append((route, call, number, args))
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
