"""Whom a call goes to, and how it is made."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from danaus.actor.batches import Key
from danaus.actor.choice import Choice
from danaus.actor.contexts import incarnation_of
from danaus.actor.endpoints import Actor
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Link
from danaus.actor.place import Place
from danaus.actor.process_messages import Deliver
from danaus.actor.runtime import Runtime
from danaus.actor.supervision_messages import ActorKey, ProcessName
from danaus.actor.tree import DIRECT
from danaus.core.extent import Extent, Region


@dataclass(frozen=True)
class Target:
    """The actors that a call goes to: a part of a mesh.

    ``cls`` is their class.  ``chosen``: where the only one stands in what it was chosen from.
    """

    runtime: Runtime
    mesh_id: str
    name: str
    region: Region
    refs: tuple[ProcessRef, ...]
    cls: type[Actor]
    chosen: Place | None = None

    @functools.cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks in the whole mesh, by rank of the part."""
        return self.region.base_ranks()

    @functools.cached_property
    def is_elsewhere(self) -> bool:
        """Tell whether any of them lives in another process."""
        mine = self.runtime.info.process_id
        return any(self.refs[rank].process_id != mine for rank in self.ranks)

    @functools.cached_property
    def _ways(self) -> dict[tuple[str, ActorKey | None], tuple[Way, ...]]:
        return {}

    def ways(self, endpoint: str, sender: ActorKey | None) -> tuple[Way, ...]:
        """Return how messages of one sender for one endpoint get to each of them.

        Args:
            endpoint: Its name.
            sender: The actor that sends; None: the program.
        """
        found = self._ways.get((endpoint, sender))
        if found is None:
            found = tuple(self._way(at, endpoint, sender) for at in range(len(self.ranks)))
            self._ways[endpoint, sender] = found
        return found

    def _way(self, at: int, endpoint: str, sender: ActorKey | None) -> Way:
        rank, runtime = self.ranks[at], self.runtime
        ref = self.refs[rank]
        name = f"{runtime.info.process_id} {sender or 'client'}"
        place = self.chosen or self._place(at)
        key = (self.mesh_id, rank, incarnation_of(ref.process_id), name, endpoint, place)
        return Way(ref, key, runtime.numbering.counter(name, f"{self.mesh_id}/{rank}"))

    @functools.cached_property
    def spreads(self) -> bool:
        """Tell whether they live in so many processes that others must pass on to some."""
        return len(self.ranks) > DIRECT and len({self.refs[r] for r in self.ranks}) > DIRECT

    def name_of(self, at: int) -> str:
        """Return the name and place of one of them; of one of a part, its rank in the whole too."""
        rank = "" if self.ranks[at] == at else f", rank {self.ranks[at]} of the mesh"
        return f"{self.name}[{self.region.extent.point(at)}{rank}]"

    @functools.cached_property
    def choice(self) -> Choice:
        """What each was given to do by ``choose``."""
        return Choice(len(self.ranks))

    def one(self, at: int) -> Target:
        """Return one of them, as a target of its own."""
        region = Region(Extent((), ()), self.ranks[at], ())
        facts = (self.mesh_id, self.name, region, self.refs)
        return Target(self.runtime, *facts, cls=self.cls, chosen=self._place(at))

    def _place(self, at: int) -> Place:
        extent = self.region.extent
        return Place(at, extent.axes, extent.sizes)

    def may_live(self, at: int) -> bool:
        """Tell whether one of them is not known to be gone."""
        ref = self.refs[self.ranks[at]]
        if ref.restarts:
            return True  # another may have its place by now
        return self.runtime.fault_of(ProcessName(ref.job, ref.process_id)) is None


class Way:
    """From one sender to one endpoint of one actor.

    Args:
        ref: The actor's process.
        key: What all messages on it share.
        numbers: Number them (A-1).

    Attributes:
        link: To the process, once the connections' loop has found it.
    """

    __slots__ = ("key", "link", "numbers", "ref")

    def __init__(self, ref: ProcessRef, key: Key, numbers: Iterator[int]) -> None:
        self.ref, self.key, self.numbers = ref, key, numbers
        self.link: Link | None = None

    def build(self, call: int, number: int) -> Deliver:
        """Return a message for the connections' loop to send."""
        mesh_id, rank, incarnation, sender, endpoint, place = self.key
        return Deliver(call, mesh_id, rank, incarnation, sender, number, endpoint, place)


@dataclass(frozen=True)
class Options:
    """How a call is made.

    Args:
        timeout_s: Seconds that each try may take; None: as long as the actor lives (A-4).
        retries: How often one more try follows on a try whose actor was lost or was too slow.
    """

    timeout_s: float | None = None
    retries: int = 0


UNLIMITED = Options()
