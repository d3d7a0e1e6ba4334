"""``danaus scale``: more replicas, or fewer, for a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from danaus.app.door import Door, Scale
from danaus.app.run_folder import RunFolder
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ScaleCommand:
    """Let a run that goes on have more replicas, or fewer; the bits stay the same.

    Down: the newest replicas leave first, each after its step. Up: those that left come back,
    then new ones start, and learn the state from the others. The number stays for --resume.

    Args:
        run: The run's folder.
        replicas: How many shall train; at most the leaves of a step.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    replicas: Annotated[int, tyro.conf.arg(help_behavior_hint="(required)")] = 0

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError("how many replicas shall train?", "--replicas N, at least 1")


def run(arguments: list[str]) -> int:
    """Scale; return the exit code."""
    if wants_help(arguments):
        return show_help(ScaleCommand, "scale")
    asked = build(ScaleCommand, read(arguments, ScaleCommand, "scale"), ("run",), "scale")
    done = Door(RunFolder.open(asked.run)).ask(Scale(asked.replicas), limit_s=None)
    print(done.words)
    return 0
