"""The simulated state of a replica: a chain of what was applied to it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

from danaus.quorum.messages import Epoch

NUM_LEAVES = 6


@dataclass(frozen=True)
class Model:
    """A committed state: a chain of what was applied, and bits that may have flipped."""

    step: int
    chain: str
    past: Model | None = None
    epoch: Epoch | None = None
    gradient: str = ""
    leaves: tuple[int, ...] = ()
    flips: str = ""
    tainted: bool = False  # a bit of it, or of a state before it, has flipped

    @property
    def fingerprint(self) -> str:
        return self.chain + self.flips


def mixed(*parts: object) -> str:
    return f"{zlib.crc32(repr(parts).encode()):08x}"


def seed_model(rank: int) -> Model:
    return Model(0, mixed("seed", rank))


@dataclass
class Kept:
    """A reduced gradient that waits for its outcome."""

    step: int
    epoch: Epoch
    digest: str
    leaves: tuple[int, ...]


def grown(model: Model, kept: Kept) -> Model:
    """Return the state after a step was applied."""
    return Model(
        step=kept.step,
        chain=mixed(model.fingerprint, kept.step, kept.digest),
        past=model,
        epoch=kept.epoch,
        gradient=kept.digest,
        leaves=kept.leaves,
        tainted=model.tainted,
    )


def flipped(model: Model, how: str) -> Model:
    return replace(model, flips=model.flips + "!" + mixed(how), tainted=True)
