"""One exchange of bytes of any number between members, each pair as it has agreed.

Owns the cut into pieces; what the bytes are is ``moving``'s.

Invariants:
    W-3: a piece that is not due, or has another size than its place, ends the lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from danaus.collectives.lane import Header, Kind, Lane, Outgoing

PIECE_BYTES = 1 << 20


def cut_pieces(num_bytes: int) -> tuple[range, ...]:
    """Return the stretches in which so many bytes travel; nothing travels as one empty piece."""
    starts = range(0, max(num_bytes, 1), PIECE_BYTES)
    return tuple(range(start, min(start + PIECE_BYTES, num_bytes)) for start in starts)


class BytesExchange:
    """The state of one exchange.

    Args:
        lanes: The peers that give or take.
        give: What each peer gets, by name.
        take: Where what each peer gives goes, by name.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        give: Mapping[str, memoryview],
        take: Mapping[str, memoryview],
    ) -> None:
        self._take = take
        self._pieces = {peer: cut_pieces(len(place)) for peer, place in take.items()}
        self._num_missing = {peer: len(pieces) for peer, pieces in self._pieces.items()}
        for lane in lanes:
            given = give.get(lane.peer)
            pieces = () if given is None else cut_pieces(len(given))
            for number, piece in enumerate(pieces):
                assert given is not None
                lane.send(Outgoing(Kind.PART, 0, number, given[piece.start : piece.stop]))

    def start(self) -> None:
        """Nothing can be done before the peers speak."""

    def due(self, lane: Lane) -> bool:
        return self._num_missing.get(lane.peer, 0) > 0

    def place(self, lane: Lane, header: Header) -> memoryview | None:
        pieces = self._pieces[lane.peer]
        if header.kind != Kind.PART or header.piece >= len(pieces):
            raise lane.damaged(f"kind {header.kind}, piece {header.piece} is none of these bytes")
        piece = pieces[header.piece]
        if header.length != len(piece):
            raise lane.damaged(f"{header.length} bytes where {len(piece)} are due")
        return self._take[lane.peer][piece.start : piece.stop]

    def take(self, lane: Lane, header: Header) -> None:
        self._num_missing[lane.peer] -= 1
