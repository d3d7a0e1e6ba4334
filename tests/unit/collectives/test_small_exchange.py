"""The tree along which the small payloads of many members travel."""

from __future__ import annotations

import pytest

from danaus.collectives.small_exchange import FAN_OUT, below, subtree


@pytest.mark.parametrize("num_members", [1, 2, 16, 17, 18, 100, 300])
def test_every_place_lies_below_exactly_one_other_and_the_top_below_none(num_members):
    found = [each for place in range(num_members) for each in below(place, num_members)]
    assert sorted(found) == list(range(1, num_members))
    assert max(len(below(place, num_members)) for place in range(num_members)) <= FAN_OUT


@pytest.mark.parametrize("num_members", [1, 17, 18, 300])
def test_the_subtrees_below_a_place_and_itself_are_its_own(num_members):
    assert sorted(subtree(0, num_members)) == list(range(num_members))
    for place in range(num_members):
        parts = [subtree(each, num_members) for each in below(place, num_members)]
        assert sorted([place, *(at for part in parts for at in part)]) == sorted(
            subtree(place, num_members)
        )
