"""H-5: a state that some ranks wrote is read by another number of ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from danaus.train.resharding import Piece, cut_anew

WHOLE = {"a": torch.arange(35.0).view(7, 5), "b": torch.arange(2.0), "n": torch.tensor([9])}
CUT = ("a", "b")


def cut(rank: int, size: int) -> tuple[dict[str, Tensor], dict[str, Piece]]:
    """Return what FSDP2 gives a rank: cut along dim 0 as ``torch.chunk`` does."""
    mine, pieces = dict(WHOLE), {}
    for name in CUT if size > 1 else ():
        whole = WHOLE[name]
        chunks = whole.chunk(size)
        mine[name] = chunks[rank] if rank < len(chunks) else whole[:0]
        start = sum(len(each) for each in chunks[:rank])
        pieces[name] = Piece(tuple(whole.shape), start)
    return mine, pieces


@pytest.mark.parametrize("before", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 9])
def test_each_rank_gets_its_rows_whoever_wrote_them(before: int, after: int) -> None:
    parts = [cut(rank, before) for rank in range(before)]
    for rank in range(after):
        wanted, pieces = cut(rank, after)
        blank = {name: torch.full_like(tensor, -1) for name, tensor in wanted.items()}
        made, lack = cut_anew(blank, pieces, parts)
        assert not lack
        assert made.keys() == wanted.keys()
        assert all(torch.equal(made[name], wanted[name]) for name in wanted)
        assert bool((blank["a"] == -1).all()), "the live state is not touched"


def test_what_is_missing_or_odd_is_said() -> None:
    mine, pieces = cut(0, 1)
    two = [cut(rank, 2) for rank in range(2)]
    assert cut_anew(mine, pieces, two[:1])[1] == "it lacks rows of a"
    odd = {**two[1][0], "z": torch.zeros(1)}
    assert cut_anew(mine, pieces, [two[0], (odd, two[1][1])])[1].startswith("it holds z")
    doubled = {**two[1][0], "a": two[1][0]["a"].double()}
    assert "a is torch.float64" in cut_anew(mine, pieces, [two[0], (doubled, two[1][1])])[1]
    other = {**two[1][1], "a": Piece((8, 5), 4)}
    assert "a is torch.float32[8, 5]" in cut_anew(mine, pieces, [two[0], (two[1][0], other)])[1]
