"""The command line of the quorum service.

Owns reading it; what the options mean is said where they are used.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from danaus.core.clock import time_of_day
from danaus.core.errors import ConfigError
from danaus.quorum.events import QuorumSettings, Saved
from danaus.quorum.folder import RunFiles
from danaus.quorum.lease_events import LEASE_S
from danaus.quorum.lease_store import LeasePlace
from danaus.quorum.ledger_traces import read_traces
from danaus.quorum.progress import ProgressSettings
from danaus.quorum.state import QuorumMachine


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What the service is started with.

    Args:
        folder: Where it keeps its state.
        address: Where it listens.
        secret_path: File of the job's secret.
        journal: The run's journal; None: none is kept.
        ledger: The run's ledgers.
        resume: Nothing of the run is alive: go on from a checkpoint in a new term.
        quorum: Limits and policy.
        progress: When a process counts as hung.
        lifeline_fd: The read end of a pipe that its controller holds; -1: none.
        detached: It goes on without its controller while there are members.
        ready_fd: Where it writes a line once it leads, or stands by, and where its page is; -1:
            nowhere.
        watches_input: It ends with its standard input, where that is a pipe.
        lease: Where candidates for the service agree on who leads; None: there is one only.
        lease_s: How long a lease counts that is not renewed.
        standby: It leaves a lease that nobody ever held to another candidate for a while.
        http: Where its page is, ``HOST:PORT``; empty: nowhere.
        http_open_reading: Who reads need not prove anything, from other machines neither.
    """

    folder: Path
    address: str
    secret_path: Path
    journal: Path | None
    ledger: Path
    resume: bool
    quorum: QuorumSettings
    progress: ProgressSettings
    lifeline_fd: int = -1
    detached: bool = False
    ready_fd: int = -1
    watches_input: bool = True
    lease: LeasePlace | None = None
    lease_s: float = LEASE_S
    standby: bool = False
    http: str = ""
    http_open_reading: bool = False

    def machine(
        self, saved: Saved | None, *, began: bool, least_term: int = 0, resume: bool = False
    ) -> QuorumMachine:
        """Return the machine, told what the disk and the run's ledgers hold.

        Args:
            saved: What the disk holds; None: nothing.
            began: Something was saved before, so that nothing means that it was lost.
            least_term: Of a lease: nothing new is announced in a term below it.
            resume: Nothing of the run is alive.
        """
        traces = read_traces(self.ledger)
        lost = saved is None and (began or traces.steps > 0 or traces.term > 0)
        # Where neither disk, ledger nor lease names a term, the clock gives one that was not used:
        # a run takes far longer than a second for each of its terms.
        unnamed = lost and least_term == 0
        term = traces.term or (int(time_of_day()) if unnamed else 0)
        return QuorumMachine(
            dataclasses.replace(self.quorum, least_term=least_term),
            saved,
            traces.steps,
            resume=resume,
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
        given.secret = given.secret or files.secret
        given.journal = given.journal or files.journal
    elif not (given.folder and given.address and given.secret):
        parser.error("name the folder of the run (--run), or --folder, --address and --secret")
    try:
        quorum = _settings(given)
    except ConfigError as error:
        parser.error(str(error))
    return _options(given, quorum)


def _settings(given: argparse.Namespace) -> QuorumSettings:
    return QuorumSettings(
        min_replicas=given.min_replicas,
        expected_replicas=given.expected_replicas,
        join_limit_s=given.join_limit_s,
        heartbeat_limit_s=given.heartbeat_limit_s,
        reconnect_limit_s=given.reconnect_limit_s,
        hold_limit_s=given.hold_limit_s,
        hold_share=given.hold_share,
        fence_limit_s=given.fence_limit_s,
        linger_s=given.linger_s,
        heal_divergence=not given.no_heal,
        replace_stragglers=given.replace_stragglers,
    )


def _options(given: argparse.Namespace, quorum: QuorumSettings) -> ServiceOptions:
    return ServiceOptions(
        folder=given.folder,
        address=given.address,
        secret_path=given.secret,
        journal=given.journal,
        ledger=given.ledger or given.folder.parent / "ledger",
        resume=given.resume,
        quorum=quorum,
        progress=ProgressSettings(hang_limit_s=given.hang_limit_s),
        lifeline_fd=given.lifeline_fd,
        detached=given.detached,
        ready_fd=given.ready_fd,
        lease=LeasePlace(given.lease) if given.lease else None,
        lease_s=given.lease_s,
        standby=given.standby,
        http=given.http,
        http_open_reading=given.http_open_reading,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m danaus.quorum.service", description="Decide who takes part in each step."
    )
    _add_places(parser)
    _add_limits(parser)
    _add_others(parser)
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, help="folder in which all of the run's processes meet")
    parser.add_argument("--folder", type=Path, help="where it keeps its state")
    parser.add_argument("--address", help="unix:/path or tcp:host:port")
    parser.add_argument("--secret", type=Path, help="the job's secret (0600)")
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
    parser.add_argument("--hold-share", type=float, default=default.hold_share)
    parser.add_argument("--linger-s", type=float, default=default.linger_s)
    parser.add_argument("--hang-limit-s", type=float, help="default: it follows the work")
    parser.add_argument("--no-heal", action="store_true", help="any divergence stops the run")
    parser.add_argument(
        "--replace-stragglers",
        action="store_true",
        help="a replica that is persistently slow ends after a step, to make room for another",
    )


def _add_others(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lease", default="", help="where candidates agree on who leads")
    parser.add_argument("--lease-s", type=float, default=LEASE_S)
    parser.add_argument("--standby", action="store_true", help="let another lead a new lease")
    parser.add_argument("--http", default="", help="HOST:PORT of its page; default: none")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that it listens")
    parser.add_argument("--http-open-reading", action="store_true", help="anyone may read there")
