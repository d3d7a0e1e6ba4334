"""``danaus drain``: a replica, or all of a host, leaves a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from danaus.app.door import Door, Drain
from danaus.app.run_folder import RunFolder
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DrainCommand:
    """Have a replica, or what lives on a host, leave after the step in hand; no step is lost.

    A replica stays away until danaus scale. A host is not used until --undo: its replicas move to
    empty hosts of the run, those for which there is none stay away.

    Args:
        run: The run's folder.
        target: A replica or a host, as in replica-1 or host2.
        grace_s: Kill what has not left after so many seconds; none: it has the time that its step
            takes.
        undo: Use the host again.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="REPLICA|HOST")]
    grace_s: float | None = None
    undo: bool = False


def run(arguments: list[str]) -> int:
    """Drain; return the exit code."""
    if wants_help(arguments):
        return show_help(DrainCommand, "drain")
    asked = build(DrainCommand, read(arguments, DrainCommand, "drain"), ("run", "target"), "drain")
    if asked.grace_s is not None and not asked.grace_s > 0:
        raise ConfigError(f"--grace-s is {asked.grace_s:g}", "it must be above 0")
    wish = Drain(asked.target, asked.grace_s, asked.undo)
    print(Door(RunFolder.open(asked.run)).ask(wish, limit_s=None).words)
    return 0
