"""Meshes of hosts, processes, actors and values are cut alike, and as numpy cuts an array."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.actor import Actor, ActorMesh, Extent, HostMesh, ProcMesh, Region, ValueMesh
from danaus.actor.identity import HostRef, ProcessRef

AXES = ("hosts", "gpus", "lanes")
Ranks = Callable[[Any], list[int]]


class Plain(Actor):
    pass


def hosts(region: Region) -> tuple[HostMesh, Ranks]:
    refs = tuple(HostRef(str(rank), "", "") for rank in range(region.num_points))
    return HostMesh(region, refs), lambda mesh: [int(host.name) for host in mesh.hosts]


def procs(region: Region) -> tuple[ProcMesh, Ranks]:
    refs = tuple(ProcessRef(str(rank), "", "", "") for rank in range(region.num_points))
    mesh = ProcMesh(region, refs, name="p", mesh_id="p")
    return mesh, lambda mesh: [int(process_id) for process_id in mesh.process_ids]


def actors(region: Region) -> tuple[ActorMesh[Plain], Ranks]:
    refs = tuple(ProcessRef(str(rank), "", "", "") for rank in range(region.num_points))
    mesh = ActorMesh(Plain, region, refs, name="a", mesh_id="a")
    return mesh, lambda mesh: [mesh._region.base_rank(point.rank) for point in mesh]


def values(region: Region) -> tuple[ValueMesh[int], Ranks]:
    mesh = ValueMesh(region, list(range(region.num_points)))
    return mesh, lambda mesh: list(mesh.values())


KINDS = [hosts, procs, actors, values]


def cut(draw: st.DrawFn, mesh: Any, array: np.ndarray) -> tuple[Any, np.ndarray]:
    """One random step, on the mesh and on the array."""
    axes = mesh.extent.axes
    match draw(st.sampled_from(("slice", "index", "rename", "flatten", "split"))):
        case "slice" if axes:
            place = draw(st.integers(0, len(axes) - 1))
            start = draw(st.integers(0, array.shape[place] - 1))
            step = draw(st.integers(1, 2))
            chosen = slice(start, None, step)
            return mesh.slice(**{axes[place]: chosen}), array[(slice(None),) * place + (chosen,)]
        case "index" if axes:
            place = draw(st.integers(0, len(axes) - 1))
            at = draw(st.integers(0, array.shape[place] - 1))
            return mesh.slice(**{axes[place]: at}), array.take(at, place)
        case "rename" if axes:
            axis = draw(st.sampled_from(axes))
            return mesh.rename(**{axis: f"{axis}_"}), array
        case "split" if axes:
            place = draw(st.integers(0, len(axes) - 1))
            size = array.shape[place]
            inner = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
            names = (f"{axes[place]}_o", f"{axes[place]}_i")
            shape = (*array.shape[:place], size // inner, inner, *array.shape[place + 1 :])
            return mesh.split(**{axes[place]: names, names[1]: inner}), array.reshape(shape)
        case "flatten":
            with contextlib.suppress(ValueError):
                return mesh.flatten("all"), array.ravel()
            assert len(set(np.diff(array.ravel()).tolist())) > 1  # only what is not even is refused
    return mesh, array


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_any_cuts_leave_what_they_leave_of_an_array(kind, data):
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=3))
    extent = Extent(AXES[: len(sizes)], tuple(sizes))
    mesh, ranks = kind(extent.region())
    array = np.arange(extent.num_points).reshape(extent.sizes)
    for _ in range(data.draw(st.integers(0, 4))):
        mesh, array = cut(data.draw, mesh, array)
    assert ranks(mesh) == array.ravel().tolist()
    assert tuple(mesh.sizes.values()) == array.shape
    assert (len(mesh), mesh.size()) == (array.size, array.size)
    assert mesh.size(mesh.extent.axes) == array.size
    for axis, size in zip(mesh.extent.axes, array.shape, strict=True):
        assert mesh.size(axis) == size


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_names_that_are_no_axes_are_refused_alike(kind):
    mesh, _ = kind(Extent.of({"hosts": 2}).region())
    for wrong in (
        lambda: mesh.slice(host=0),
        lambda: mesh.split(host=("a", "b"), b=2),
        lambda: mesh.rename(host="a"),
        lambda: mesh.size("host"),
    ):
        with pytest.raises(ValueError, match="did you mean 'hosts'"):
            wrong()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_values_are_found_by_place_like_elements(sizes, data):
    extent = Extent(AXES[: len(sizes)], tuple(sizes))
    mesh, _ = values(extent.region())
    array = np.arange(extent.num_points).reshape(extent.sizes)
    at = [data.draw(st.integers(0, size - 1)) for size in sizes]
    assert mesh.item(**dict(zip(extent.axes, at, strict=True))) == array[tuple(at)]
    assert [mesh.get(rank) for rank in range(len(mesh))] == array.ravel().tolist()
    for point, value in mesh.items():
        assert array[tuple(point.values())] == value
        assert point.rank == value
