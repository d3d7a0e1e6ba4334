"""``danaus chaos``: faults on purpose for a run that goes on, asked for by another terminal."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from danaus.app.chaos import FaultPlan, check
from danaus.app.chaos_kinds import FACTS, PHASES
from danaus.app.chaos_log import plan_again
from danaus.app.run_folder import RunFolder
from danaus.app.settings import fleet_of, saved
from danaus.cli.arguments import Given, read, show_help, wants_help
from danaus.core.config import load
from danaus.core.errors import ConfigError

_WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class ChaosCommand:
    """Strike a run that goes on.  A fault is KIND or KIND:KEY=VALUE,KEY=VALUE...; --list shows all.

    Args:
        run: The run's folder.
        faults: What to do to it, as in kill, hang:replica=1 or kill:every=20s,times=5.
        seed: Chooses whom they hit where they do not say.
        replay: A record, of this run or another: strike the same in the same steps.
        list: Show every kind of fault, what may be said of it, and what it needs.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    faults: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FAULT")] = ()
    seed: int = 0
    replay: Path | None = None
    list: bool = False


def run(arguments: list[str]) -> int:
    """Strike; return the exit code."""
    if wants_help(arguments):
        return show_help(ChaosCommand, "chaos", default=ChaosCommand())
    asked = _command(read(arguments, ChaosCommand, "chaos"))
    if asked.list:
        print(kinds())
        return 0
    if asked.run is None:
        raise ConfigError("RUN is missing", "danaus chaos takes RUN FAULT ...")
    plan = _plan(asked)
    folder = RunFolder.open(asked.run)
    settings = saved(folder)
    check(plan, fleet_of(settings, folder))
    # Loads what speaks to processes, which neither help nor bad input needs.
    from danaus.app.chaos_live import strike_live

    return strike_live(folder, plan, settings)


def _command(given: Given) -> ChaosCommand:
    named = dict(given.settings)
    if given.values:
        named |= {"run": given.values[0], "faults": given.values[1:]}
    return load(ChaosCommand, overrides=named)


def _plan(asked: ChaosCommand) -> FaultPlan:
    if asked.replay is None:
        if not asked.faults:
            raise ConfigError(
                "no fault is named", "danaus chaos takes RUN FAULT ...", "see danaus chaos --list"
            )
        return FaultPlan.parse(*asked.faults, seed=asked.seed)
    if asked.faults:
        raise ConfigError("--replay and a fault are both named", "one of them")
    return plan_again(asked.replay)


def kinds() -> str:
    """Return every kind of fault, and the keys that all take, for a person."""
    lines = ["KIND or KIND:KEY=VALUE,KEY=VALUE...", ""]
    for kind, facts in FACTS.items():
        needs = f"  [needs {', '.join(facts.needs)}]" if facts.needs else ""
        takes = ", ".join(facts.keys) or "no target"
        lines += _wrapped(f"{kind.value:<17}", f"{facts.about}  ({takes}){needs}")
        for key, legal in (("where", facts.where), ("process", facts.processes)):
            if legal:
                lines += _wrapped(" " * 17, f"{key}={'|'.join(legal)}")
    return "\n".join(
        [
            *lines,
            "",
            *_wrapped(
                "when             ",
                "at_step=40, after=5s or 5steps, every=20s or 20steps, "
                "times=3, all_back=true (wait until everybody is back)",
            ),
            *_wrapped(
                "at_phase         ", f"{', '.join(PHASES)} (kinds that hit a worker at once)"
            ),
            *_wrapped(
                "target           ",
                "replica=1, rank=0, host=1: without, the seed chooses; "
                "peer=2, peer=controller: without, everybody",
            ),
        ]
    )


def _wrapped(head: str, words: str) -> list[str]:
    indent = " " * len(head)
    return textwrap.wrap(words, _WIDTH, initial_indent=head, subsequent_indent=indent)
