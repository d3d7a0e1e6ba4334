"""The geometry of meshes: named axes, points on them, and parts of them.

Owns ``Extent`` (axes and their sizes), ``Point`` (one place in an extent) and ``Region`` (a
strided part of a mesh, which knows the ranks of the mesh it was cut from).  Knows nothing of
what sits on a mesh.  Pure: values in, values out; ranks count row-major, the last axis fastest.

Invariants:
    No mesh is empty: every axis has at least one place.
    ``region.rank_of(region.base_rank(rank)) == rank`` for every rank of a region.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_Index = int | slice


@dataclass(frozen=True, slots=True)
class Extent(Mapping[str, int]):
    """Named axes and how many places each has: a mapping from axis to size.

    Args:
        axes: Names, all different, the slowest first.
        sizes: Places per axis, each at least 1.

    Raises:
        ValueError: names repeat or are no identifiers, or a size is not a positive whole number.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        # Lists are what Monarch's users write.
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if len(self.axes) != len(self.sizes):
            raise ValueError(f"{len(self.axes)} axes {self.axes}, but {len(self.sizes)} sizes")
        if len(set(self.axes)) != len(self.axes):
            raise ValueError(f"axes {self.axes} repeat a name")
        for axis, size in zip(self.axes, self.sizes, strict=True):
            if not axis.isidentifier():
                raise ValueError(f"axis {axis!r} is not a name that Python code can use")
            if size < 1:
                raise ValueError(f"axis {axis} has size {size}, it needs at least 1")

    def __getitem__(self, axis: str) -> int:
        if axis not in self.axes:
            raise KeyError(axis)
        return self.sizes[self.axes.index(axis)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.axes)

    def __len__(self) -> int:
        return len(self.axes)

    def __bool__(self) -> bool:
        return True  # one without axes has a place too

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Extent:
        """Return the extent with these sizes by axis, in the mapping's order."""
        return cls(tuple(sizes), tuple(int(size) for size in sizes.values()))

    @property
    def num_points(self) -> int:
        """How many places there are; 1 without axes."""
        return math.prod(self.sizes)

    @property
    def labels(self) -> tuple[str, ...]:
        """The axes (the name that Monarch gives them)."""
        return self.axes

    @property
    def nelements(self) -> int:
        """How many places there are (Monarch's name)."""
        return self.num_points

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """Return the places on ``axis``, on several together, or of all."""
        if axis is None:
            return self.num_points
        if isinstance(axis, str):
            return self.sizes[self.index_of(axis)]
        return math.prod(self.sizes[self.index_of(each)] for each in axis)

    def index_of(self, axis: str) -> int:
        """Return where ``axis`` stands among the axes, counted from 0.

        Raises:
            ValueError: There is no such axis; the nearest name is told.
        """
        if axis not in self.axes:
            near = difflib.get_close_matches(axis, self.axes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"no axis {axis!r}: there are {list(self.axes)}{hint}")
        return self.axes.index(axis)

    def to_dict(self) -> dict[str, int]:
        """Return the sizes by axis."""
        return dict(zip(self.axes, self.sizes, strict=True))

    def point(self, rank: int) -> Point:
        """Return the place with this rank; raises ``IndexError`` outside ``0 … num_points - 1``."""
        return Point(rank, self)

    def points(self) -> Iterator[Point]:
        """Yield every place, by rank."""
        return (Point(rank, self) for rank in range(self.num_points))

    def rank(self, place: Mapping[str, int]) -> int:
        """Return the rank of the place with these coordinates, one for each axis.

        Raises:
            ValueError: an axis is missing or unknown.
            IndexError: a coordinate is outside its axis.
        """
        for axis in place:
            self.index_of(axis)
        rank = 0
        for axis, size in zip(self.axes, self.sizes, strict=True):
            if axis not in place:
                raise ValueError(f"no coordinate for axis {axis!r} in {dict(place)}")
            rank = rank * size + _checked_index(axis, place[axis], size)
        return rank

    def join(self, inner: Extent) -> Extent:
        """Return the extent that has a whole ``inner`` at each place of this one.

        Raises:
            ValueError: Both have an axis of the same name.
        """
        return Extent(self.axes + inner.axes, self.sizes + inner.sizes)

    def region(self) -> Region:
        """Return the whole of it as a region."""
        return Region(self, 0, _dense_strides(self.sizes))

    def __str__(self) -> str:
        return " x ".join(f"{axis}={size}" for axis, size in self.to_dict().items()) or "one point"


@dataclass(frozen=True, slots=True, eq=False)
class Point(Mapping[str, int]):
    """One place: a mapping from axis to coordinate that also knows its ``rank``.

    Equal to a point of an equal extent with the same rank, and to a plain mapping with the same
    coordinates.
    """

    rank: int
    extent: Extent

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.extent.num_points:
            raise IndexError(
                f"no rank {self.rank} in {self.extent}: ranks are 0 to {self.extent.num_points - 1}"
            )

    def __getitem__(self, axis: str) -> int:
        if axis not in self.extent.axes:
            raise KeyError(axis)
        place = self.extent.index_of(axis)
        return self.rank // math.prod(self.extent.sizes[place + 1 :]) % self.extent.sizes[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.extent.axes)

    def __len__(self) -> int:
        return len(self.extent.axes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Point):
            return (self.rank, self.extent) == (other.rank, other.extent)
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.rank, self.extent))

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """Return the places on ``axis``, on several together, or of the whole extent."""
        return self.extent.size(axis)

    def __str__(self) -> str:
        return ",".join(f"{axis}={at}" for axis, at in self.items()) or "the only point"


@dataclass(frozen=True, slots=True)
class Region:
    """A strided part of a mesh.

    ``extent`` is the part's own geometry; its rank ``r`` is the base mesh's ``base_rank(r)``.

    Args:
        extent: Axes and sizes of the part.
        offset: Base rank of the part's rank 0.
        strides: Base ranks from one place of an axis to the next, by axis.
    """

    extent: Extent
    offset: int
    strides: tuple[int, ...]

    @property
    def num_points(self) -> int:
        """How many places there are."""
        return self.extent.num_points

    def base_rank(self, rank: int) -> int:
        """Return the base mesh's rank of this part's ``rank``."""
        at = self.extent.point(rank)
        return self.offset + sum(
            at[axis] * stride for axis, stride in zip(self.extent.axes, self.strides, strict=True)
        )

    def base_ranks(self) -> tuple[int, ...]:
        """Return the base mesh's ranks, by this part's rank."""
        ranks = [self.offset]
        for size, stride in zip(self.extent.sizes, self.strides, strict=True):
            ranks = [rank + at * stride for rank in ranks for at in range(size)]
        return tuple(ranks)

    def rank_of(self, base_rank: int) -> int | None:
        """Return this part's rank of the base mesh's ``base_rank``, None if it is outside."""
        by_stride = sorted(
            zip(self.extent.axes, self.extent.sizes, self.strides, strict=True),
            key=lambda each: -abs(each[2]),
        )
        lowest = self.offset + sum(min(0, (size - 1) * step) for _, size, step in by_stride)
        left, place = base_rank - lowest, {}
        for axis, size, stride in by_stride:
            steps = min(size - 1, left // abs(stride)) if size > 1 else 0
            left -= steps * abs(stride)
            place[axis] = steps if stride > 0 else size - 1 - steps
        return self.extent.rank(place) if left == 0 <= base_rank - lowest else None

    def __contains__(self, base_rank: object) -> bool:
        return isinstance(base_rank, int) and self.rank_of(base_rank) is not None

    def slice(self, **selection: _Index) -> Region:
        """Cut out a part: a whole number takes one place and drops the axis, a slice keeps it.

        Raises:
            ValueError: an axis is unknown, or nothing is left of one.
            IndexError: a number is outside its axis.
        """
        for axis in selection:
            self.extent.index_of(axis)
        offset, sizes, strides = self.offset, dict[str, int](), list[int]()
        for axis, size, stride in zip(
            self.extent.axes, self.extent.sizes, self.strides, strict=True
        ):
            chosen = _chosen(axis, selection.get(axis, slice(None)), size)
            offset += chosen.start * stride
            if isinstance(selection.get(axis), int):
                continue
            sizes[axis] = len(chosen)
            strides.append(stride * chosen.step)
        return Region(Extent.of(sizes), offset, tuple(strides))

    def split(self, **parts: Sequence[str] | int) -> Region:
        """Replace axes by several each, the slowest first.

        ``split(host=("dp", "pp"), pp=4)``: ``host`` becomes ``dp`` and ``pp``, ``pp`` has size 4
        and ``dp`` what is left; at most one size per axis may be left open.

        Raises:
            ValueError: an axis or a name is unknown, or the sizes do not multiply to the axis's.
        """
        sizes = {name: size for name, size in parts.items() if isinstance(size, int)}
        region = self
        for axis, names in parts.items():
            if not isinstance(names, int):
                wanted = {name: sizes.pop(name, None) for name in names}
                region = region._split_one(axis, wanted)
        if sizes:
            raise ValueError(f"sizes {sizes} belong to no part that an axis is split into")
        return region

    def _split_one(self, axis: str, wanted: dict[str, int | None]) -> Region:
        place = self.extent.index_of(axis)
        parts = _inferred(axis, wanted, self.extent.sizes[place])
        stride = self.strides[place]
        inner = tuple(stride * dense for dense in _dense_strides(parts.sizes))
        axes, sizes, strides = self.extent.axes, self.extent.sizes, self.strides
        split = Extent(
            axes[:place] + parts.axes + axes[place + 1 :],
            sizes[:place] + parts.sizes + sizes[place + 1 :],
        )
        return Region(split, self.offset, strides[:place] + inner + strides[place + 1 :])

    def flatten(self, name: str) -> Region:
        """Return the same places in the same order on one axis.

        Raises:
            ValueError: they do not lie at one distance from each other.
        """
        dims = [d for d in zip(self.extent.sizes, self.strides, strict=True) if d[0] > 1]
        for (_, outer), (size, inner) in itertools.pairwise(dims):
            if outer != size * inner:
                raise ValueError(
                    f"cannot flatten {self.extent}: base ranks {self.base_ranks()} do not lie at "
                    "one distance from each other; flatten before slicing"
                )
        stride = dims[-1][1] if dims else 1
        return Region(Extent((name,), (self.num_points,)), self.offset, (stride,))

    def rename(self, **names: str) -> Region:
        """Return the same part with axes called by other names: ``rename(old="new")``."""
        for axis in names:
            self.extent.index_of(axis)
        axes = tuple(names.get(axis, axis) for axis in self.extent.axes)
        return Region(Extent(axes, self.extent.sizes), self.offset, self.strides)


def _dense_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))


def _checked_index(axis: str, at: int, size: int) -> int:
    if not 0 <= at < size:
        raise IndexError(f"no place {at} on axis {axis}: its places are 0 to {size - 1}")
    return at


def _chosen(axis: str, index: _Index, size: int) -> range:
    if isinstance(index, int):
        at = _checked_index(axis, index + size if index < 0 else index, size)
        return range(at, at + 1)
    chosen = range(*index.indices(size))
    if not chosen:
        raise ValueError(f"nothing is left of axis {axis} of size {size} after {index}")
    return chosen


def _inferred(axis: str, wanted: dict[str, int | None], size: int) -> Extent:
    given = math.prod(part for part in wanted.values() if part is not None)
    left = size // given if given > 0 else 0
    parts = {name: left if part is None else part for name, part in wanted.items()}
    if math.prod(parts.values()) != size or not parts:
        raise ValueError(f"axis {axis} of size {size} cannot be split into {wanted}")
    return Extent.of(parts)
