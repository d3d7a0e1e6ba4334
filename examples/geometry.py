"""Meshes are cut, split, flattened and renamed; a part is called as the whole is.

    python examples/geometry.py

Hosts, processes, actors and what comes back from them all answer to the same words.
"""

from __future__ import annotations

from danaus.actor import (
    Actor,
    Extent,
    Shape,
    Slice,
    current_rank,
    endpoint,
    shutdown_context,
    this_host,
)


class Place(Actor):
    """Knows where it is."""

    @endpoint
    def rank(self) -> int:
        """Return the rank in the whole mesh."""
        return current_rank().rank


def main() -> None:
    """Call parts of a mesh of six, then do the same to ranks alone."""
    places = this_host().spawn_procs(per_host={"gpus": 6}).slice(hosts=0).spawn("place", Place)

    even = places.slice(gpus=slice(0, None, 2))  # a part has ranks of its own, and is a mesh
    print(f"even places: {list(even.rank.call().get().values())} on {even.extent}")

    grid = places.split(gpus=("dp", "tp"), tp=2)  # the same six, on two axes
    values = grid.rank.call().get()
    print(f"dp=1, tp=0 is rank {values.item(dp=1, tp=0)}")
    print(f"the column tp=1: {list(values.slice(tp=1).values())}")
    print(f"all on one axis again: {grid.flatten('rank').sizes}")
    print(f"by other names: {grid.rename(dp='replica', tp='shard').sizes}")
    for point, value in values.slice(dp=slice(1, 3)).items():
        print(f"{dict(point)} -> {value}")

    ranks = Shape(("dp", "tp"), Slice(offset=0, sizes=(3, 2), strides=(2, 1)))  # without a mesh
    print(f"the column tp=1: {ranks.at('tp', 1).ranks()}, rank 4 is {ranks.coordinates(4)}")
    print(f"{Extent.of({'dp': 3, 'tp': 2})} has {ranks.extent.nelements} places")
    shutdown_context()


if __name__ == "__main__":
    main()
