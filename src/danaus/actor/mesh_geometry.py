"""The geometry that meshes of hosts, of processes and of actors share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from danaus.core.extent import Extent, Point, Region


class Mesh:
    """Geometry that all meshes share.

    Args:
        region: Which part of the whole mesh this is.
    """

    def __init__(self, region: Region) -> None:
        self._region = region

    def _cut(self, region: Region) -> Self:
        raise NotImplementedError

    @property
    def extent(self) -> Extent:
        """Axes and sizes."""
        return self._region.extent

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by axis."""
        return self._region.extent.to_dict()

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """Return the places on ``axis``, on several together, or of all."""
        return self._region.extent.size(axis)

    def points(self) -> Iterator[Point]:
        """Yield every place, by rank."""
        return self._region.extent.points()

    def slice(self, **selection: int | slice) -> Self:
        """Return a part: a number takes one place and drops its axis, a slice keeps it."""
        return self._cut(self._region.slice(**selection))

    def split(self, **parts: Sequence[str] | int) -> Self:
        """Return the same mesh with axes split: ``split(hosts=("dp", "pp"), pp=4)``."""
        return self._cut(self._region.split(**parts))

    def flatten(self, name: str) -> Self:
        """Return the same mesh on one axis."""
        return self._cut(self._region.flatten(name))

    def rename(self, **names: str) -> Self:
        """Return the same mesh with axes called by other names: ``rename(old="new")``."""
        return self._cut(self._region.rename(**names))

    def __len__(self) -> int:
        return self._region.num_points

    def __iter__(self) -> Iterator[Point]:
        return self.points()
