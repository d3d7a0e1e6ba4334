"""One rank's part of a state, out of the parts of another number of ranks (H-5).

Owns ``cut_anew``.  Tensors are cut along dim 0, as ``train.parallel`` does; each part of a
checkpoint says which rows of which whole it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import torch
from torch import Tensor


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a tensor that is cut: from ``start`` on, of a whole of ``shape``."""

    shape: tuple[int, ...]
    start: int


Pieces = Mapping[str, Piece]


def cut_anew(
    mine: Mapping[str, Tensor],
    pieces: Pieces,
    parts: Iterable[tuple[Mapping[str, Tensor], Pieces]],
) -> tuple[dict[str, Tensor], str]:
    """Return a rank's tensors by name, and in words what the parts lack of them, if anything.

    One part is held at a time.

    Args:
        mine: Tensors as this rank has them; only names, shapes and dtypes count.
        pieces: Which of them are cut, and where.
        parts: Each rank's tensors, and which of those are cut.
    """
    made = {name: torch.empty_like(tensor) for name, tensor in mine.items()}
    num_rows = dict.fromkeys(made, 0)
    for tensors, theirs in parts:
        for name, tensor in tensors.items():
            if name not in made:
                return made, f"it holds {name}, which is not in the state"
            whole = pieces[name] if name in pieces else Piece(tuple(made[name].shape), 0)
            source = theirs.get(name) or Piece(tuple(tensor.shape), 0)
            if source.shape != whole.shape or tensor.dtype != made[name].dtype:
                return made, f"{name} is {tensor.dtype}{list(source.shape)} in it"
            num_rows[name] += _copy_rows((made[name], whole.start), (tensor, source.start))
    for name, tensor in made.items():
        if num_rows[name] < tensor.shape[0]:
            return made, f"it lacks rows of {name}"
    return made, ""


def _copy_rows(into: tuple[Tensor, int], out_of: tuple[Tensor, int]) -> int:
    """Copy the rows that both hold, each from its first one on; return how many."""
    (to, to_start), (source, start) = into, out_of
    first = max(to_start, start)
    end = min(to_start + to.shape[0], start + source.shape[0])
    if end <= first:
        return 0
    to[first - to_start : end - to_start] = source[first - start : end - start]
    return end - first
