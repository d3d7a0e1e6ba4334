"""What ``danaus bench actor`` is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from danaus.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ActorBenchConfig:
    """What a message, a mesh and a death cost, beside peers that are measured alike.

    Args:
        rows: Which rows to measure, by name; none: all.
        repeats: How often each thing is measured.
        peers: Folder of the peers' programs and environments (make peers); none: no peer.
        out: Where the figures are written as JSON; none: they are only printed.
        small: Only see that everything runs: few calls, few processes, small tensors.
    """

    rows: tuple[str, ...] = ()
    repeats: int = 5
    peers: Path | None = None
    out: Path | None = None
    small: bool = False

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ConfigError(f"repeats is {self.repeats}", "it must be at least 1")
