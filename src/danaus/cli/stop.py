"""``danaus stop``: a run ends, whoever started it and wherever."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from danaus.app.door import Door, Stop
from danaus.app.ending import end_what_is_left
from danaus.app.run_folder import RunFolder
from danaus.app.run_lock import RunLock
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, DeadlinePassed

_END_LIMIT_S = 60.0
_LOOK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class StopCommand:
    """End a run: its watchdog, its controller, all workers, the quorum service.

    It goes on by danaus train --resume RUN, from its last checkpoint.

    Args:
        run: The run's folder.
        grace_s: Where no controller is alive: seconds that workers have to end by themselves.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    grace_s: float = 2.0


def run(arguments: list[str]) -> int:
    """Stop; return the exit code."""
    if wants_help(arguments):
        return show_help(StopCommand, "stop")
    asked = build(StopCommand, read(arguments, StopCommand, "stop"), ("run",), "stop")
    if not asked.grace_s > 0:
        raise ConfigError(f"--grace-s is {asked.grace_s:g}", "it must be above 0")
    folder = RunFolder.open(asked.run)
    where = os.path.relpath(folder.path)
    if not RunLock(folder.path).is_free:
        print(_ask_to_stop(folder, where), flush=True)
        _until_free(folder)
        print(f"stopped; go on with: danaus train --resume {where}")
        return 0
    with folder:
        folder.hold()
        found = end_what_is_left(folder, "danaus stop", grace_s=asked.grace_s)
    print(f"ended {', '.join(found)}" if found else f"nothing of {where} runs")
    return 0


def _ask_to_stop(folder: RunFolder, where: str) -> str:
    try:
        return Door(folder).ask(Stop("danaus stop")).words
    except DeadlinePassed as late:
        pid, _ = RunLock(folder.path).holder()
        raise ConfigError(
            f"the run's controller (pid {pid}) does not answer: {late}",
            "it hangs, or is stopped",
            f"kill -CONT {pid}; or let another take its place, which can be stopped: "
            f"danaus train --resume {where} --take-over",
        ) from late


def _until_free(folder: RunFolder) -> None:
    lock, deadline, never = RunLock(folder.path), Deadline.after(_END_LIMIT_S), threading.Event()
    while not lock.is_free:
        if deadline.passed:
            raise DeadlinePassed("the run's controller to end", _END_LIMIT_S)
        never.wait(_LOOK_S)
