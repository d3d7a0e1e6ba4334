"""Geometry agrees with numpy's indexing of an array that holds the base mesh's ranks."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.extent import Extent, Point, Region

AXES = ("hosts", "ranks", "gpus", "lanes")


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    sizes = draw(st.lists(st.integers(1, 5), max_size=4))
    return Extent(AXES[: len(sizes)], tuple(sizes))


indices = st.one_of(
    st.integers(-6, 6),
    st.builds(
        slice,
        st.one_of(st.none(), st.integers(-6, 6)),
        st.one_of(st.none(), st.integers(-6, 6)),
        st.one_of(st.none(), st.integers(1, 3), st.integers(-3, -1)),
    ),
)


def array_of(extent: Extent) -> np.ndarray:
    return np.arange(extent.num_points).reshape(extent.sizes)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Region, np.ndarray]:
    """A region after up to three cuts, and numpy's view after the same cuts."""
    extent = draw(extents())
    region, array = extent.region(), array_of(extent)
    for _ in range(draw(st.integers(0, 3))):
        selection = {axis: draw(indices) for axis in region.extent.axes if draw(st.booleans())}
        key = tuple(selection.get(axis, slice(None)) for axis in region.extent.axes)
        try:
            cut = np.asarray(array[key])
        except IndexError:
            with pytest.raises((IndexError, ValueError)):
                region.slice(**selection)
            break
        if cut.size == 0:
            with pytest.raises(ValueError, match="nothing is left"):
                region.slice(**selection)
            break
        region, array = region.slice(**selection), cut
    return region, array


@given(cuts())
def test_slices_hold_the_ranks_that_numpy_finds(cut):
    region, array = cut
    assert region.extent.sizes == array.shape
    assert region.base_ranks() == tuple(int(rank) for rank in array.ravel())


@given(cuts())
def test_base_rank_and_rank_of_are_inverse(cut):
    region, _ = cut
    ranks = region.base_ranks()
    assert [region.base_rank(rank) for rank in range(region.num_points)] == list(ranks)
    for base_rank in range(min(ranks) - 2, max(ranks) + 3):
        expected = ranks.index(base_rank) if base_rank in ranks else None
        assert region.rank_of(base_rank) == expected
        assert (base_rank in region) == (expected is not None)


@given(extents())
def test_points_count_like_numpy(extent):
    assert [point.rank for point in extent.points()] == list(range(extent.num_points))
    for point in extent.points():
        place = np.unravel_index(point.rank, extent.sizes) if extent.sizes else ()
        assert tuple(point.values()) == tuple(int(at) for at in place)
        assert extent.rank(point) == point.rank


@given(cuts())
def test_flatten_keeps_order_or_refuses(cut):
    region, array = cut
    ranks = array.ravel()
    even = len(ranks) < 2 or len(set(np.diff(ranks))) == 1
    if even:
        flat = region.flatten("all")
        assert flat.extent == Extent(("all",), (region.num_points,))
        assert flat.base_ranks() == region.base_ranks()
    else:
        with pytest.raises(ValueError, match="cannot flatten"):
            region.flatten("all")


@given(cuts(), st.integers(1, 6))
def test_split_reshapes_one_axis(cut, size):
    region, array = cut
    for place, axis in enumerate(region.extent.axes):
        if region.extent.size(axis) % size:
            with pytest.raises(ValueError, match="cannot be split"):
                region.split(**{axis: ("outer", "inner"), "inner": size})
            continue
        split = region.split(**{axis: ("outer", "inner"), "inner": size})
        shape = (*array.shape[:place], array.shape[place] // size, size, *array.shape[place + 1 :])
        assert split.extent.sizes == shape
        assert split.base_ranks() == region.base_ranks()


def test_several_axes_split_at_once():
    mesh = Extent.of({"host": 32, "gpu": 8}).region()
    split = mesh.split(host=("dp", "pp"), gpu=("tp", "cp"), pp=16, cp=2)
    assert split.extent == Extent.of({"dp": 2, "pp": 16, "tp": 4, "cp": 2})
    with pytest.raises(ValueError, match="belong to no part"):
        mesh.split(host=("dp", "pp"), pp=16, cp=2)


def test_rename_changes_names_only():
    region = Extent.of({"hosts": 2, "gpus": 3}).region().slice(gpus=slice(1, 3))
    renamed = region.rename(hosts="dp")
    assert renamed.extent == Extent.of({"dp": 2, "gpus": 2})
    assert renamed.base_ranks() == region.base_ranks() == (1, 2, 4, 5)
    with pytest.raises(ValueError, match="repeat"):
        region.rename(hosts="gpus")


def test_an_unknown_axis_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'hosts'"):
        Extent.of({"hosts": 2}).region().slice(host=0)


@pytest.mark.parametrize(
    ("axes", "sizes"),
    [(("a",), (0,)), (("a", "a"), (1, 1)), (("a",), (1, 2)), (("not a name",), (1,))],
)
def test_impossible_extents_are_refused(axes, sizes):
    with pytest.raises(ValueError, match="ax"):
        Extent(axes, sizes)


def test_points_are_mappings_and_keys():
    extent = Extent.of({"hosts": 2, "gpus": 4})
    point = extent.point(6)
    assert point == {"hosts": 1, "gpus": 2}
    assert point == Point(6, extent)
    assert point != Point(6, extent.region().rename(gpus="ranks").extent)
    assert {point: "here"}[extent.point(6)] == "here"
    assert str(point) == "hosts=1,gpus=2"
    assert point.size("gpus") == 4
    with pytest.raises(IndexError):
        extent.point(8)
    with pytest.raises(ValueError, match="no coordinate for axis 'gpus'"):
        extent.rank({"hosts": 1})


def test_join_puts_the_inner_extent_at_each_place():
    joined = Extent.of({"hosts": 2}).join(Extent.of({"gpus": 3}))
    assert joined.axes == ("hosts", "gpus")
    assert joined.region().slice(hosts=1).base_ranks() == (3, 4, 5)


def test_everything_pickles():
    region = Extent.of({"hosts": 2, "gpus": 4}).region().slice(gpus=slice(None, None, -2))
    for value in (region, region.extent, region.extent.point(3)):
        assert pickle.loads(pickle.dumps(value)) == value


def test_an_extent_is_a_mapping_from_axis_to_size():
    extent = Extent.of({"hosts": 2, "gpus": 3})
    assert dict(extent) == {**extent} == {"hosts": 2, "gpus": 3}
    assert (extent["gpus"], list(extent), len(extent)) == (3, ["hosts", "gpus"], 2)
    assert ("gpus" in extent, "tp" in extent, extent.get("tp")) == (True, False, None)
    with pytest.raises(KeyError, match="tp"):
        extent["tp"]
    assert (len(Extent((), ())), bool(Extent((), ()))) == (0, True)
    assert {extent: 1}[Extent(("hosts", "gpus"), (2, 3))] == 1
