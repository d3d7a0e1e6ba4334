"""Whom a call goes to, and how it is made."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from danaus.actor.choice import Choice
from danaus.actor.contexts import incarnation_of
from danaus.actor.identity import ProcessRef
from danaus.actor.runtime import Runtime
from danaus.actor.supervision_messages import ProcessName
from danaus.core.extent import Extent, Region


@dataclass(frozen=True)
class Target:
    """The actors that a call goes to: a part of a mesh."""

    runtime: Runtime
    mesh_id: str
    name: str
    region: Region
    refs: tuple[ProcessRef, ...]

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
    def receivers(self) -> tuple[str, ...]:
        """Who each of them is, to number messages by."""
        return tuple(f"{self.mesh_id}/{rank}" for rank in self.ranks)

    @functools.cached_property
    def incarnations(self) -> tuple[int, ...]:
        """The incarnation of each of them."""
        return tuple(incarnation_of(self.refs[rank].process_id) for rank in self.ranks)

    @functools.cached_property
    def choice(self) -> Choice:
        """What each was given to do by ``choose``."""
        return Choice(len(self.ranks))

    def one(self, at: int) -> Target:
        """Return one of them, as a target of its own."""
        region = Region(Extent((), ()), self.ranks[at], ())
        return Target(self.runtime, self.mesh_id, self.name, region, self.refs)

    def may_live(self, at: int) -> bool:
        """Tell whether one of them is not known to be gone."""
        ref = self.refs[self.ranks[at]]
        return self.runtime.fault_of(ProcessName(ref.job, ref.process_id)) is None


@dataclass(frozen=True)
class Options:
    """How a call is made.

    Args:
        timeout_s: Seconds that each try may take; None: as long as the actor lives (A-4).
        retries: How often one more try follows on a try whose actor was lost or was too slow.
    """

    timeout_s: float | None = None
    retries: int = 0
