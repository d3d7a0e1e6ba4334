"""The command line of the quorum service.

Owns reading it; what the options mean is said where they are used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from danaus.core.clock import time_of_day
from danaus.quorum.events import QuorumSettings, Saved
from danaus.quorum.folder import RunFiles
from danaus.quorum.ledger_traces import read_traces
from danaus.quorum.progress import ProgressSettings
from danaus.quorum.state import QuorumMachine


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What the service is started with.

    ``lifeline_fd`` is the read end of a pipe that its controller holds, -1: none; ``detached``
    that it goes on without its controller while there are members.
    """

    folder: Path
    address: str
    secret_file: Path
    journal: Path | None
    ledger: Path
    resume: bool
    quorum: QuorumSettings
    progress: ProgressSettings
    lifeline_fd: int = -1
    detached: bool = False

    def machine(self, saved: Saved | None, *, began: bool) -> QuorumMachine:
        """Return the machine, told what the disk and the run's ledgers hold.

        Args:
            saved: What the disk holds; None: nothing.
            began: Something was saved before, so that nothing means that it was lost.
        """
        traces = read_traces(self.ledger)
        lost = saved is None and (began or traces.steps > 0 or traces.term > 0)
        # Where neither disk nor ledger names a term, the clock gives one that was not used: a
        # run takes far longer than a second for each of its terms.
        term = traces.term or (int(time_of_day()) if lost else 0)
        return QuorumMachine(
            self.quorum,
            saved,
            traces.steps,
            resume=self.resume,
            lost=lost,
            ledger_term=term,
        )


def read_options(arguments: Sequence[str]) -> ServiceOptions:
    """Return the options; a mistake ends the process with one line and exit code 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.run is not None:
        files = RunFiles.prepare(given.run)
        given.folder = given.folder or files.quorum
        given.address = given.address or files.service_address
        given.secret_file = given.secret_file or files.secret
        given.journal = given.journal or files.journal
    elif not (given.folder and given.address and given.secret_file):
        parser.error("name the folder of the run (--run), or --folder, --address and --secret-file")
    quorum = QuorumSettings(
        min_replicas=given.min_replicas,
        expected_replicas=given.expected_replicas,
        join_limit_s=given.join_limit_s,
        heartbeat_limit_s=given.heartbeat_limit_s,
        reconnect_limit_s=given.reconnect_limit_s,
        hold_limit_s=given.hold_limit_s,
        fence_limit_s=given.fence_limit_s,
        linger_s=given.linger_s,
        heal_divergence=not given.no_heal,
        replace_stragglers=given.replace_stragglers,
    )
    return ServiceOptions(
        folder=given.folder,
        address=given.address,
        secret_file=given.secret_file,
        journal=given.journal,
        ledger=given.ledger or given.folder.parent / "ledger",
        resume=given.resume,
        quorum=quorum,
        progress=ProgressSettings(hang_limit_s=given.hang_limit_s),
        lifeline_fd=given.lifeline_fd,
        detached=given.detached,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m danaus.quorum.service", description="Decide who takes part in each step."
    )
    _add_places(parser)
    _add_limits(parser)
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, help="folder in which all of the run's processes meet")
    parser.add_argument("--folder", type=Path, help="where it keeps its state")
    parser.add_argument("--address", help="unix:/path or tcp:host:port")
    parser.add_argument("--secret-file", type=Path, help="the job's secret (0600)")
    parser.add_argument("--journal", type=Path, help="the run's journal; without it none is kept")
    parser.add_argument("--ledger", type=Path, help="the run's ledgers (default: beside --folder)")
    parser.add_argument(
        "--lifeline-fd",
        type=int,
        default=-1,
        help="read end of a pipe with whose end it is killed, even if it is stopped",
    )
    parser.add_argument(
        "--detached",
        action="store_true",
        help="go on without whoever started it for as long as there are members",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="nothing of the run is alive: go on from a checkpoint in a new term",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    default = QuorumSettings()
    parser.add_argument("--min-replicas", type=int, default=default.min_replicas)
    parser.add_argument("--expected-replicas", type=int, default=default.expected_replicas)
    for name in ("join", "heartbeat", "reconnect", "hold", "fence"):
        limit = getattr(default, f"{name}_limit_s")
        parser.add_argument(f"--{name}-limit-s", type=float, default=limit)
    parser.add_argument("--linger-s", type=float, default=default.linger_s)
    parser.add_argument("--hang-limit-s", type=float, help="default: it follows the work")
    parser.add_argument("--no-heal", action="store_true", help="any divergence stops the run")
    parser.add_argument(
        "--replace-stragglers",
        action="store_true",
        help="a replica that is persistently slow ends after a step, to make room for another",
    )
