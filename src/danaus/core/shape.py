"""Strided sets of ranks, with and without names for their axes.

Owns ``Slice`` (offset, sizes, strides) and ``Shape`` (a ``Slice`` whose axes are named): the same
as a ``Region`` in the words of those who know them from tensors.  Pure.

Invariants:
    No rank stands in a slice twice, and none is empty.
    ``slice[slice.index(rank)] == rank`` for every rank of a slice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from danaus.core.extent import Extent, Region


@dataclass(frozen=True)
class Slice:
    """The ranks ``offset + i * strides[0] + j * strides[1] + …``, the last axis fastest.

    Args:
        offset: The first rank.
        sizes: Places per axis, each at least 1.
        strides: Ranks from one place of an axis to the next, by axis.

    Raises:
        ValueError: There is not one stride for each size, or a rank would stand in it twice.
    """

    offset: int
    sizes: Sequence[int]
    strides: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "strides", tuple(self.strides))
        if len(self.sizes) != len(self.strides):
            raise ValueError(f"{len(self.sizes)} sizes, but {len(self.strides)} strides")
        span = 0
        steps = zip(self.sizes, self.strides, strict=True)
        for stride, size in sorted((abs(stride), size) for size, stride in steps if size > 1):
            if stride <= span:
                raise ValueError(f"strides {self.strides} meet a rank twice: sizes {self.sizes}")
            span += (size - 1) * stride
        self.region()  # refuses sizes that are none

    @classmethod
    def new_row_major(cls, sizes: Sequence[int]) -> Slice:
        """Return all ranks from 0 in these sizes."""
        strides = tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))
        return cls(0, tuple(sizes), strides)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.sizes)

    def region(self, labels: Sequence[str] | None = None) -> Region:
        """Return the same as a region, with these names for its axes."""
        names = tuple(labels) if labels is not None else tuple(f"axis{i}" for i in range(self.ndim))
        return Region(Extent(names, tuple(self.sizes)), self.offset, tuple(self.strides))

    def nditem(self, coordinates: Sequence[int]) -> int:
        """Return the rank at these places, one for each axis.

        Raises:
            IndexError: A place is outside its axis.
            ValueError: There is not one for each axis.
        """
        if len(coordinates) != self.ndim:
            raise ValueError(f"{len(coordinates)} coordinates for {self.ndim} axes")
        for at, size in zip(coordinates, self.sizes, strict=True):
            if not 0 <= at < size:
                raise IndexError(f"no place {at} on an axis of size {size}")
        steps = zip(coordinates, self.strides, strict=True)
        return self.offset + sum(at * stride for at, stride in steps)

    def coordinates(self, rank: int) -> list[int]:
        """Return the places of a rank, by axis; raises ``ValueError`` if it is not in the slice."""
        place = self.region().extent.point(self.index(rank))
        return list(place.values())

    def index(self, rank: int) -> int:
        """Return how many ranks of the slice come before this one.

        Raises:
            ValueError: It is not in the slice.
        """
        index = self.region().rank_of(rank)
        if index is None:
            raise ValueError(f"rank {rank} is not in {self}")
        return index

    def __getitem__(self, index: int) -> int:
        return self.region().base_rank(index + len(self) if index < 0 else index)

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def __iter__(self) -> Iterator[int]:
        return iter(self.region().base_ranks())

    def __contains__(self, rank: object) -> bool:
        return rank in self.region()


@dataclass(frozen=True)
class Shape:
    """A slice whose axes have names.

    Args:
        labels: The names, one for each axis.
        ndslice: The ranks.
    """

    labels: Sequence[str]
    ndslice: Slice

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        self.ndslice.region(self.labels)  # refuses names that are none

    @classmethod
    def of(cls, region: Region) -> Shape:
        """Return a region as a shape."""
        ndslice = Slice(region.offset, region.extent.sizes, region.strides)
        return cls(region.extent.axes, ndslice)

    @classmethod
    def unity(cls) -> Shape:
        """Return the shape of one rank, without axes."""
        return cls((), Slice(0, (), ()))

    @property
    def region(self) -> Region:
        """The same as a region."""
        return self.ndslice.region(self.labels)

    @property
    def extent(self) -> Extent:
        """Axes and sizes."""
        return self.region.extent

    def ranks(self) -> list[int]:
        """Return all ranks."""
        return list(self.ndslice)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the place of a rank; raises ``ValueError`` if it is not in the shape."""
        return dict(zip(self.labels, self.ndslice.coordinates(rank), strict=True))

    def at(self, label: str, index: int) -> Shape:
        """Take one place of an axis and drop the axis."""
        return Shape.of(self.region.slice(**{label: index}))

    def select(self, label: str, chosen: slice) -> Shape:
        """Keep some places of an axis."""
        return Shape.of(self.region.slice(**{label: chosen}))

    def __len__(self) -> int:
        return len(self.ndslice)

    def slice(self, **selection: int | slice) -> Shape:
        """Cut out a part, as meshes are cut."""
        return Shape.of(self.region.slice(**selection))
