"""Where a message's receiver stands among those that were called with it."""

from __future__ import annotations

import msgspec

from danaus.core.extent import Extent, Point


class Place(msgspec.Struct, frozen=True, array_like=True, cache_hash=True, gc=False):
    """A place in the mesh, or the part of one, that was called.

    What a route is known by holds it, and is looked up for each message: so its hash is kept.
    Every message that arrives holds it: the garbage collector need not go through it.
    """

    at: int
    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def point(self) -> Point:
        """The same as users know places."""
        return Extent(self.axes, self.sizes).point(self.at)
