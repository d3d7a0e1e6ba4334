"""One reduction over sockets: which pieces go where, and when they can be added.

The vector is cut into one stretch per member; its member combines it in tree order and hands the
sum to all.  Stretches travel in pieces: while one is added, the next are on their way.  Partials
from peers land in a window of kept buffers; a peer that is further ahead waits.

Invariants:
    T-4: each element is added once, by one member, along the plan.
    No deadlock: sums overtake partials and are always taken; the oldest piece that is not yet
    added is always taken, so somebody can go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.collectives.combining import Combiner
from danaus.collectives.lane import Header, Kind, Lane, Outgoing
from danaus.collectives.tensor_bytes import view_bytes
from danaus.collectives.tree import ReductionPlan

PIECE_ELEMENTS = 128 * 1024
WINDOW_PIECES = 4
# A vector shorter than this per member is combined by fewer of them.
ALIGN_ELEMENTS = 1024
_FLOAT_BYTES = 4


class Workspace:
    """Buffers of one group, kept from step to step."""

    def __init__(self) -> None:
        self.combiner = Combiner()
        self._window = torch.empty(0)

    def window(self, num_elements: int) -> Tensor:
        """Return at least ``num_elements`` of fp32, undefined."""
        if self._window.numel() < num_elements:
            self._window = torch.empty(num_elements)
        return self._window


class TreeExchange:
    """The state of one reduction.

    Args:
        plan: What everybody brings.
        me: My place in the plan.
        lanes: Connection with each place (None at mine).
        partials: Mine, flat fp32.
        out: Where the sum goes, flat fp32.
        workspace: Kept buffers.
    """

    def __init__(
        self,
        plan: ReductionPlan,
        me: int,
        lanes: Sequence[Lane | None],
        *,
        partials: Sequence[Tensor],
        out: Tensor,
        workspace: Workspace,
    ) -> None:
        self._plan, self._me, self._out = plan, me, out
        self._partials, self._workspace = partials, workspace
        self._lanes = [lane for lane in lanes if lane is not None]
        self._place_of = {id(lane): at for at, lane in enumerate(lanes) if lane is not None}
        share = -(-out.numel() // len(lanes))
        self._share = -(-share // ALIGN_ELEMENTS) * ALIGN_ELEMENTS
        self._out_bytes = view_bytes(out)
        self._num_added = 0
        self._num_mine = self._num_pieces(me)
        self._missing = [sum(who != me for who, _ in plan.slots)] * self._num_mine
        self._remaining = [
            self._num_mine * len(nodes) + self._num_pieces(at) if at != me else 0
            for at, nodes in enumerate(plan.nodes)
        ]
        self._make_window()
        self._queue_partials(lanes)

    def start(self) -> None:
        """Add what needs no peer."""
        self._add_ready()

    # -- geometry -----------------------------------------------------------------------------

    def _stretch(self, at: int) -> tuple[int, int]:
        size = self._out.numel()
        return min(at * self._share, size), min((at + 1) * self._share, size)

    def _num_pieces(self, at: int) -> int:
        start, stop = self._stretch(at)
        return -(-(stop - start) // PIECE_ELEMENTS)

    def _bounds(self, at: int, piece: int) -> tuple[int, int]:
        start, stop = self._stretch(at)
        low = start + piece * PIECE_ELEMENTS
        return low, min(low + PIECE_ELEMENTS, stop)

    def _make_window(self) -> None:
        """Lay out the window: for each partial of a peer, a few pieces in turn."""
        start, stop = self._stretch(self._me)
        size = min(PIECE_ELEMENTS, stop - start)
        depth = min(WINDOW_PIECES, self._num_mine)
        remote = [slot for slot in self._plan.slots if slot[0] != self._me]
        window = self._workspace.window(len(remote) * depth * size)
        self._cells: dict[tuple[int, int], list[Tensor]] = {}
        for index, slot in enumerate(remote):
            first = index * depth * size
            self._cells[slot] = [
                window[first + i * size : first + (i + 1) * size] for i in range(depth)
            ]
        self._cell_bytes = {
            slot: [view_bytes(cell) for cell in cells] for slot, cells in self._cells.items()
        }

    def _queue_partials(self, lanes: Sequence[Lane | None]) -> None:
        views = [view_bytes(partial) for partial in self._partials]
        for at, lane in enumerate(lanes):
            if lane is None:
                continue
            for piece in range(self._num_pieces(at)):
                low, high = self._bounds(at, piece)
                for k, view in enumerate(views):
                    part = view[low * _FLOAT_BYTES : high * _FLOAT_BYTES]
                    lane.send(Outgoing(Kind.PARTIAL, k, piece, part))

    # -- what lanes ask -----------------------------------------------------------------------

    def due(self, lane: Lane) -> bool:
        return self._remaining[self._place_of[id(lane)]] > 0

    def place(self, lane: Lane, header: Header) -> memoryview | None:
        at = self._place_of[id(lane)]
        if header.kind == Kind.RESULT and header.piece < self._num_pieces(at):
            low, high = self._bounds(at, header.piece)
            target = self._out_bytes[low * _FLOAT_BYTES : high * _FLOAT_BYTES]
        elif (
            header.kind == Kind.PARTIAL
            and header.piece < self._num_mine
            and header.slot < len(self._plan.nodes[at])
        ):
            if header.piece >= self._num_added + WINDOW_PIECES:
                return None
            low, high = self._bounds(self._me, header.piece)
            cells = self._cell_bytes[at, header.slot]
            target = cells[header.piece % len(cells)][: (high - low) * _FLOAT_BYTES]
        else:
            raise lane.damaged(f"kind {header.kind}, piece {header.piece} is none of this sum")
        if len(target) != header.length:
            raise lane.damaged(f"{header.length} bytes where {len(target)} are due")
        return target

    def take(self, lane: Lane, header: Header) -> None:
        self._remaining[self._place_of[id(lane)]] -= 1
        if header.kind == Kind.PARTIAL:
            self._missing[header.piece] -= 1
            self._add_ready()

    def _add_ready(self) -> None:
        while self._num_added < self._num_mine and self._missing[self._num_added] == 0:
            self._add(self._num_added)
            self._num_added += 1
            for lane in self._lanes:
                lane.paused = False

    def _add(self, piece: int) -> None:
        low, high = self._bounds(self._me, piece)
        values: list[Tensor] = []
        writable: list[bool] = []
        for who, k in self._plan.slots:
            if who == self._me:
                values.append(self._partials[k][low:high])
            else:
                cells = self._cells[who, k]
                values.append(cells[piece % len(cells)][: high - low])
            writable.append(who != self._me)
        self._workspace.combiner.combine(values, writable, self._plan.adds, out=self._out[low:high])
        part = self._out_bytes[low * _FLOAT_BYTES : high * _FLOAT_BYTES]
        for lane in self._lanes:
            lane.send(Outgoing(Kind.RESULT, 0, piece, part), urgent=True)
