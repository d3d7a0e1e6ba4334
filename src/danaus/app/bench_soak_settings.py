"""What ``danaus bench soak`` is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from danaus.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SoakConfig:
    """Actors that talk without pause while processes are killed and connections cut.

    Every message is accounted for: got once, in order, or its sender was told. Nothing may be left
    at the end.

    Args:
        seconds: How long they talk.
        processes: How many there are, with one actor each.
        kill_every_s: Mean seconds between two processes that are killed.
        cut_every_s: Mean seconds between two processes whose connections are all cut.
        seed: Of whom is struck when, and of who talks to whom; what is struck in which moment
            also depends on the machine.
        out: Where the figures are written as JSON; none: they are only printed.
    """

    seconds: float = 60.0
    processes: int = 16
    kill_every_s: float = 1.5
    cut_every_s: float = 0.5
    seed: int = 0
    out: Path | None = None

    def __post_init__(self) -> None:
        if self.processes < 2:
            raise ConfigError(f"processes is {self.processes}", "two at least, to talk")
        for name in ("seconds", "kill_every_s", "cut_every_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", "it must be above 0")
