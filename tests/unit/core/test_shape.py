"""Strided sets of ranks agree with numpy's strided arrays."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from danaus.core.extent import Extent
from danaus.core.shape import Shape, Slice


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    """A slice of any order of axes, with gaps, some counted backwards."""
    sizes = draw(st.lists(st.integers(1, 4), max_size=3))
    span, strides = 0, [0] * len(sizes)
    for place in draw(st.permutations(range(len(sizes)))):
        stride = span + draw(st.integers(1, 3))
        strides[place] = stride * draw(st.sampled_from((1, -1)))
        span += (sizes[place] - 1) * stride
    return Slice(span + draw(st.integers(0, 5)), sizes, strides)


def array_of(ranks: Slice) -> np.ndarray:
    whole = np.arange(1000)
    strides = tuple(stride * whole.itemsize for stride in ranks.strides)
    return as_strided(whole[ranks.offset :], tuple(ranks.sizes), strides)


@given(slices())
def test_ranks_are_those_of_a_strided_array(ranks):
    array = array_of(ranks)
    assert list(ranks) == array.ravel().tolist()
    assert (len(ranks), ranks.ndim) == (array.size, array.ndim)
    for at, rank in np.ndenumerate(array):
        assert ranks.nditem(at) == rank
        assert ranks.coordinates(int(rank)) == list(at)
        assert ranks[ranks.index(int(rank))] == rank
        assert int(rank) in ranks


@given(slices(), st.integers(-5, 200))
def test_other_ranks_are_not_in_it(ranks, rank):
    if rank not in list(ranks):
        assert rank not in ranks
        with pytest.raises(ValueError, match="is not in"):
            ranks.index(rank)


@given(slices())
def test_a_shape_is_cut_like_an_array(ranks):
    labels = ("a", "b", "c")[: ranks.ndim]
    shape, array = Shape(labels, ranks), array_of(ranks)
    assert shape.extent == Extent(labels, tuple(ranks.sizes))
    assert Shape.of(shape.region) == shape == pickle.loads(pickle.dumps(shape))
    for place, label in enumerate(labels):
        assert shape.at(label, 0).ranks() == array.take(0, place).ravel().tolist()
        odd = shape.select(label, slice(0, None, 2))
        key = tuple(slice(0, None, 2 if i == place else None) for i in range(len(labels)))
        assert odd.ranks() == array[key].ravel().tolist()
        assert shape.slice(**{label: slice(0, None, 2)}) == odd
    first = shape.coordinates(ranks.offset)
    assert first == dict.fromkeys(labels, 0)


def test_row_major_counts_from_zero():
    assert Slice.new_row_major([2, 3]) == Slice(0, (2, 3), (3, 1))
    assert list(Slice.new_row_major([2, 3])) == list(range(6))
    assert Slice.new_row_major((4,))[-1] == 3
    assert Shape.unity().ranks() == [0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((0, (2, 2), (1,)), "2 sizes, but 1 strides"),
        ((0, (3, 3), (1, 1)), "meet a rank twice"),
        ((0, (2,), (0,)), "meet a rank twice"),
        ((0, (0,), (1,)), "needs at least 1"),
    ],
)
def test_what_is_no_set_of_ranks_is_refused(arguments, why):
    with pytest.raises(ValueError, match=why):
        Slice(*arguments)


def test_places_that_are_none_are_refused():
    ranks = Slice.new_row_major((2, 3))
    with pytest.raises(IndexError, match="no place 3"):
        ranks.nditem((0, 3))
    with pytest.raises(ValueError, match="1 coordinates for 2 axes"):
        ranks.nditem((0,))
    with pytest.raises(ValueError, match="2 axes"):
        Shape(("a", "b"), Slice.new_row_major((2,)))
