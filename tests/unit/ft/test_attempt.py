"""One try of one step: each leaf is handed out, and has to be added, once."""

import pytest
import torch

from danaus.collectives.folding import LeafFolder
from danaus.core.errors import ConfigError
from danaus.ft.attempt import Attempt


def attempt(run, stopped=lambda _leaf: False):
    folder = LeafFolder(2)
    folder.begin(run, 4)
    return Attempt(7, run, leaf_size=3, folder=folder, stopped=stopped)


def test_a_leaf_is_a_run_of_microbatches():
    mine = attempt(range(2, 4))
    handed_out = []
    for leaf in mine.leaves():
        handed_out.append((leaf.index, leaf.microbatches))
        assert not mine.complete
        mine.add(leaf, torch.ones(2))
    assert handed_out == [(2, range(6, 9)), (3, range(9, 12))]
    assert mine.complete


def test_a_leaf_that_is_not_added_is_missed_before_the_next():
    leaves = attempt(range(2)).leaves()
    next(leaves)
    with pytest.raises(ConfigError, match="leaf 0 of step 7 was not added"):
        next(leaves)


def test_after_a_refusal_nothing_has_to_be_added():
    mine = attempt(range(2))
    for _ in mine.leaves():
        mine.refuse("not finite")
        mine.refuse("nor now")
    assert (mine.refusal, mine.complete) == ("not finite", False)


def test_it_stops_before_a_leaf_once_its_quorum_has_ended():
    mine = attempt(range(4), stopped=lambda leaf: leaf == 1)
    for leaf in mine.leaves():
        mine.add(leaf, torch.ones(2))
    assert (mine.stopped_early, mine.complete) == (True, False)
