"""What comes back from a mesh: one value, or one outcome, for each point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from danaus.core.extent import Extent, Point, Region

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How one point answered: ``value``, or ``error`` (A-5)."""

    value: T | None = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Tell whether there is a value."""
        return self.error is None

    def get(self) -> T:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a value too


class ValueMesh(Generic[T]):
    """Values by point, in the order of ranks.

    Args:
        region: Their geometry.
        values: One for each rank of ``region``.
    """

    def __init__(self, region: Region, values: Sequence[T]) -> None:
        if len(values) != region.num_points:
            raise ValueError(f"{len(values)} values for {region.num_points} points")
        self._region = region
        self._values = tuple(values)

    @property
    def extent(self) -> Extent:
        """Axes and sizes."""
        return self._region.extent

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by axis."""
        return self.extent.to_dict()

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """Return the places on ``axis``, on several together, or of all."""
        return self.extent.size(axis)

    def get(self, rank: int) -> T:
        """Return the value at ``rank``."""
        return self._values[rank]

    def item(self, **place: int) -> T:
        """Return the value at these coordinates; an axis with one place needs none."""
        only = {axis: 0 for axis, size in self.sizes.items() if size == 1}
        return self._values[self.extent.rank(only | place)]

    def items(self) -> Iterator[tuple[Point, T]]:
        """Yield ``(point, value)`` by rank."""
        return zip(self.extent.points(), self._values, strict=True)

    def values(self) -> tuple[T, ...]:
        """Return the values by rank."""
        return self._values

    def map(self, function: Callable[[T], U]) -> ValueMesh[U]:
        """Return the mesh of ``function(value)``."""
        return ValueMesh(self._region, [function(value) for value in self._values])

    def slice(self, **selection: int | slice) -> ValueMesh[T]:
        """Return a part, as meshes are sliced."""
        return self._part(self.extent.region().slice(**selection))

    def split(self, **parts: Sequence[str] | int) -> ValueMesh[T]:
        """Return the same values with axes split: ``split(hosts=("dp", "pp"), pp=4)``."""
        return self._part(self.extent.region().split(**parts))

    def flatten(self, name: str) -> ValueMesh[T]:
        """Return the same values on one axis."""
        return self._part(self.extent.region().flatten(name))

    def rename(self, **names: str) -> ValueMesh[T]:
        """Return the same values with axes called by other names."""
        return self._part(self.extent.region().rename(**names))

    def _part(self, region: Region) -> ValueMesh[T]:
        values = [self._values[rank] for rank in region.base_ranks()]
        return ValueMesh(region.extent.region(), values)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[Point, T]]:
        return self.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ValueMesh):
            return NotImplemented
        return (self.extent, self._values) == (other.extent, other._values)

    __hash__ = None  # type: ignore[assignment]  # values need not be hashable

    def __repr__(self) -> str:
        inner = ", ".join(f"({point}): {value!r}" for point, value in self.items())
        return f"ValueMesh({inner})"
