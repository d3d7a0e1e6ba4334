"""Values and outcomes by point."""

from __future__ import annotations

import pytest

from danaus.actor import Extent, Outcome, ValueMesh

EXTENT = Extent.of({"hosts": 2, "gpus": 3})


@pytest.fixture
def values():
    return ValueMesh(EXTENT.region(), [10, 11, 12, 20, 21, 22])


def test_values_are_found_by_rank_and_place(values):
    assert values.get(4) == 21
    assert values.item(hosts=1, gpus=1) == 21
    assert values.values() == (10, 11, 12, 20, 21, 22)
    assert [(point["gpus"], value) for point, value in values][:2] == [(0, 10), (1, 11)]
    assert (len(values), values.size("gpus"), values.sizes) == (6, 3, {"hosts": 2, "gpus": 3})


def test_a_part_is_cut_as_meshes_are(values):
    assert values.slice(gpus=1).values() == (11, 21)
    assert values.slice(hosts=1).item(gpus=2) == 22
    assert values.flatten("all").item(all=5) == 22
    assert values.rename(hosts="nodes").item(nodes=0, gpus=0) == 10
    assert values.split(gpus=("a", "b"), b=3).item(hosts=0, a=0, b=2) == 12


def test_a_single_value_needs_no_place():
    assert ValueMesh(Extent.of({"r": 1}).region(), ["x"]).item() == "x"


def test_an_axis_with_one_place_need_not_be_named():
    values = ValueMesh(Extent.of({"hosts": 1, "gpus": 2}).region(), ["x", "y"])
    assert values.item(gpus=1) == values.item(hosts=0, gpus=1) == "y"
    with pytest.raises(ValueError, match="no coordinate for axis 'gpus'"):
        values.item(hosts=0)


def test_the_number_of_values_must_fit():
    with pytest.raises(ValueError, match="5 values for 6 points"):
        ValueMesh(EXTENT.region(), [1] * 5)


def test_meshes_are_equal_by_shape_and_values(values):
    assert values == ValueMesh(EXTENT.region(), [10, 11, 12, 20, 21, 22])
    assert values.map(lambda value: value + 1).get(0) == 11
    assert values != values.flatten("all")
    assert "hosts=0,gpus=0" in repr(values)


def test_an_outcome_is_a_value_or_an_error():
    assert Outcome(3).get() == 3
    assert Outcome(None).ok
    failed = Outcome(error=ValueError("no"))
    assert not failed.ok
    with pytest.raises(ValueError, match="no"):
        failed.get()
