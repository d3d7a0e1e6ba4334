"""``danaus roll``: the hosts of a run that goes on are drained and restarted, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from danaus.app.door import Door, Roll
from danaus.app.run_folder import RunFolder
from danaus.cli.arguments import build, read, show_help, wants_help


@dataclass(frozen=True, kw_only=True)
class RollCommand:
    """Drain and restart the hosts of a run one by one, with new code, while it trains on.

    Of each host the replicas leave after their step; its agent, nursery and workers begin anew
    with what is installed now, and the next host follows once the replicas are counted again.
    It stops with words where too few replicas would be left, or one does not come back. Ctrl-C
    ends it after the host in hand; the same command goes on with the rest.

    For a new image or driver, restart danaus host itself: SIGTERM drains what works there, and the
    run takes the host back once it listens again.

    Args:
        run: The run's folder.
        host: Only this one, as in host2; none: all.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    host: str = ""


def run(arguments: list[str]) -> int:
    """Roll; return the exit code."""
    if wants_help(arguments):
        return show_help(RollCommand, "roll")
    asked = build(RollCommand, read(arguments, RollCommand, "roll"), ("run",), "roll")
    door = Door(RunFolder.open(asked.run))
    more = True
    while more:
        done = door.ask(Roll(asked.host), limit_s=None)
        print(done.words, flush=True)
        more = done.more and not asked.host
    return 0
