"""``danaus stacks``: what every rank of a run is at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from danaus.actor.agent_messages import ProcessStacks
from danaus.app.run_folder import RunFolder
from danaus.app.stacks import HostStacks, stacks_of
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.wire.position import Phase

_ADDRESS = re.compile(r"0x[0-9a-f]+ ")  # of a thread: it differs where all else is the same


@dataclass(frozen=True, kw_only=True)
class StacksCommand:
    """Show the stacks of every thread of every worker of a run; the run goes on meanwhile.

    The agents of the hosts are asked, so that it works while the controller hangs or is gone.
    Stacks are of Python code; those that have the same come once, with all their names.

    Args:
        run: The run's folder.
        only: Only processes whose name holds this, as in replica-1.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    only: str = ""


def run(arguments: list[str]) -> int:
    """Show them; return the exit code: 1 if there is nothing to show."""
    if wants_help(arguments):
        return show_help(StacksCommand, "stacks")
    asked = build(StacksCommand, read(arguments, StacksCommand, "stacks"), ("run",), "stacks")
    hosts = stacks_of(RunFolder.open(asked.run))
    lines = list(_lines(hosts, asked.only))
    if lines:
        print("\n".join(lines))
    if any(asked.only in each.process_id for host in hosts for each in host.processes):
        return 0
    of = f" whose name holds {asked.only!r}" if asked.only else ""
    print(f"no worker of this run{of} is alive and can be asked; danaus train --resume goes on")
    return 1


def _lines(hosts: list[HostStacks], only: str) -> Iterator[str]:
    same: dict[str, list[ProcessStacks]] = {}
    for host in hosts:
        if host.why and only in host.host:
            yield f"{host.host}: {host.why}"
        for each in host.processes:
            if only in each.process_id:
                text = _ADDRESS.sub("", each.text) or f"no stacks: {each.why}"
                same.setdefault(text, []).append(each)
    for text, processes in same.items():
        yield ""
        yield from (_head(each) for each in processes)
        yield from (f"    {line}" for line in text.splitlines())


def _head(process: ProcessStacks) -> str:
    at = f"step {process.step}, {Phase(process.phase).name.lower()}" if process.step else "starting"
    return f"{process.process_id} (pid {process.pid}): {at}"
