"""``danaus ledger verify``: what the ledgers of a run say together, and whether it may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from danaus.app.run_folder import RunFolder
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.core.errors import ConfigError
from danaus.ft.lineage import merge, verify


@dataclass(frozen=True)
class VerifyCommand:
    """Merge a run's ledgers and check them: every step held, every sample committed exactly once
    on the surviving lineage, every member of one mind.

    Args:
        run: Folder of the run.
    """

    run: Path


def run(arguments: list[str]) -> int:
    """Verify; return 0 if nothing is wrong, 1 otherwise."""
    if wants_help(arguments):
        return show_help(VerifyCommand, "ledger verify")
    if arguments[:1] != ["verify"]:
        asked = f"danaus ledger cannot {arguments[0]!r}" if arguments else "nothing to do"
        raise ConfigError(asked, to_do="there is: danaus ledger verify RUN")
    given = read(arguments[1:], VerifyCommand, "ledger verify")
    asked_for = build(VerifyCommand, given, ("run",), "ledger verify")
    paths = RunFolder.open(asked_for.run).ledger_paths()
    if not paths:
        raise ConfigError(f"{asked_for.run} has no ledger yet")
    found = verify(merge(paths))
    for problem in found.problems:
        print(f"WRONG  {problem}")
    for note in found.notes:
        print(f"note   {note}")
    counted = f"{found.num_steps} steps, {found.num_samples} samples, {len(paths)} ledgers"
    verdict = "each sample committed exactly once, all members agree"
    if found.problems:
        verdict = f"{len(found.problems)} problems"
    elif not found.num_steps:
        verdict = "nothing is committed yet"
    print(f"{counted}: {verdict}")
    return 0 if found.ok else 1
