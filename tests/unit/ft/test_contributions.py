"""Whose tensors count: by hand, and for any quorum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.ft.contributions import WorldSizeMode, choose_contributors

DYNAMIC, SPARES = WorldSizeMode.DYNAMIC, WorldSizeMode.FIXED_WITH_SPARES


@pytest.mark.parametrize(
    ("unable", "mode", "size", "chosen"),
    [
        ((), DYNAMIC, 1, ("a", "b", "c")),
        (("b",), DYNAMIC, 1, ("a", "c")),
        ((), SPARES, 2, ("a", "b")),
        (("a",), SPARES, 2, ("b", "c")),
        (("a", "b"), SPARES, 2, ("c",)),
        (("a", "b", "c"), DYNAMIC, 1, ()),
        ((), SPARES, 5, ("a", "b", "c")),
    ],
)
def test_by_hand(unable, mode, size, chosen):
    found = choose_contributors(("a", "b", "c"), unable, mode=mode, min_replica_size=size)
    assert found == chosen


names = st.lists(st.sampled_from("abcdefgh"), unique=True).map(sorted)


@given(names, st.sets(st.sampled_from("abcdefgh")), st.sampled_from(WorldSizeMode),
       st.integers(1, 9))  # fmt: skip
def test_the_lowest_ranks_that_are_able(replica_ids, unable, mode, size):
    chosen = choose_contributors(replica_ids, unable, mode=mode, min_replica_size=size)
    able = [name for name in replica_ids if name not in unable]
    assert list(chosen) == able[: len(chosen)]
    assert len(chosen) == (len(able) if mode is DYNAMIC else min(len(able), size))
