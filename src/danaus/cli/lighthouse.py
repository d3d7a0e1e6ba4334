"""``danaus lighthouse``: the quorum service as a process of its own, with a standby if wanted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from danaus.cli.arguments import Given, build, read, show_help, wants_help
from danaus.core.errors import ConfigError
from danaus.quorum.events import QuorumSettings
from danaus.quorum.folder import RunFiles
from danaus.quorum.http_face import access_token
from danaus.quorum.lease_events import LEASE_S
from danaus.quorum.lease_store import LeasePlace
from danaus.quorum.lighthouse import serve
from danaus.quorum.progress import ProgressSettings
from danaus.quorum.service_options import ServiceOptions
from danaus.wire.secret import Secret

_POLICY = QuorumSettings()


@dataclass(frozen=True, kw_only=True)
class LighthouseCommand:
    """Decide who takes part in each step; ``danaus lighthouse token`` prints the token of its page.

    Ctrl-C or SIGTERM ends it; members train on meanwhile, and go on with whoever is started next.

    Limits that are not named are those of the run, where ``danaus train`` has made its folder.

    Args:
        run: Folder in which all processes of a run on this machine meet; made if it is not there.
        folder: Where it keeps its state; none: quorum in the run's folder.
        listen: Where members find it, as in tcp:10.77.0.10:4600; empty: a socket in that folder.
        secret: File of the job's secret (0600); none: secret in the run's folder.
        journal: Where each decision is written; none: journal.jsonl in the run's folder.
        ledger: Folder of the run's ledgers; none: ledger beside its state.
        min_replicas: Replicas without which no step is taken.
        expected_replicas: Replicas that the first quorum waits for until the join limit.
        join_limit_s: How long a healthy replica that has not asked is waited for.
        heartbeat_limit_s: A process that is silent for longer is not healthy.
        reconnect_limit_s: The same for one whose connection closed, that nobody else watches, and
            of which its machine does not say that it has ended.
        hold_limit_s: How long members wait at a boundary for a learner.
        hold_share: They wait for one, instead of going on beside it, where that will take less than
            this part of the time by which it shortens a step; 0: never.
        fence_limit_s: After this, a process that could not be killed counts as out of reach.
        linger_s: How long members may take to follow the first that asks for the next quorum.
        hang_limit_s: How long a process may stand still; none: it follows the work.
        heal: Let replicas whose bits differ heal; else a divergence ends the run.
        replace_stragglers: A replica that is persistently slow makes room for another.
        resume: Nothing of the run is alive: go on from a checkpoint in a new term.
        standby: Let another lead at first, where nobody has led yet.  Whoever finds another leading
            waits and takes over once that one's lease is over, with this option or without it.
        lease: Where candidates agree on who leads: file (in the state's folder), file:/FOLDER,
            etcd:http://HOST:2379/KEY, kubernetes:NAMESPACE/NAME, or none.
        lease_s: How long a lease counts that is not renewed.
        lease_ca: Certificates that have signed the lease store's; none: those of the system.
        lease_cert: Certificate and key to show the lease's store.
        lease_token_file: Bearer token for the lease's store.
        http: Where its page, JSON and metrics are, as in 127.0.0.1:4680; empty: nowhere.
        http_open_reading: Let anyone read there, from other machines too.
    """

    run: Path | None = None
    folder: Path | None = None
    listen: str = ""
    secret: Path | None = None
    journal: Path | None = None
    ledger: Path | None = None
    min_replicas: int = _POLICY.min_replicas
    expected_replicas: int = _POLICY.expected_replicas
    join_limit_s: float = _POLICY.join_limit_s
    heartbeat_limit_s: float = _POLICY.heartbeat_limit_s
    reconnect_limit_s: float = _POLICY.reconnect_limit_s
    hold_limit_s: float = _POLICY.hold_limit_s
    hold_share: float = _POLICY.hold_share
    fence_limit_s: float = _POLICY.fence_limit_s
    linger_s: float = _POLICY.linger_s
    hang_limit_s: float | None = None
    heal: bool = True
    replace_stragglers: bool = False
    resume: bool = False
    standby: bool = False
    lease: str = "file"
    lease_s: float = LEASE_S
    lease_ca: Path | None = None
    lease_cert: Path | None = None
    lease_token_file: Path | None = None
    http: str = ""
    http_open_reading: bool = False

    def __post_init__(self) -> None:
        limits = [each.name for each in fields(self) if each.name.endswith("_s")]
        for name in limits:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"--{name.replace('_', '-')} {value:g}", "must be above 0")
        if self.standby and self.resume:
            raise ConfigError(
                "--standby and --resume",
                "one waits for another that leads, the other says that nobody does",
                "leave one out",
            )
        if self.standby and self.lease == "none":
            raise ConfigError("--standby without a lease", "", "name the lease that both share")


def run(arguments: list[str]) -> int:
    """Be the service until a person or a signal ends it; return the exit code."""
    if wants_help(arguments):
        return show_help(LighthouseCommand, "lighthouse")
    given = read(arguments, LighthouseCommand, "lighthouse")
    prints_token = given.values == ("token",)
    if prints_token:
        given = Given((), given.settings)
    asked = asked_for(given)
    if prints_token:
        print(access_token(Secret.load(_secret_path(asked))))
        return 0
    asyncio.run(serve(_options(asked), _say))
    _say("ended")
    return 0


def asked_for(given: Given) -> LighthouseCommand:
    """Return what is asked for; what is not named of the limits is as the run has it."""
    limits = _limits_of_run(given.settings.get("run"))
    named = Given(given.values, {**limits, **given.settings})
    return build(LighthouseCommand, named, (), "lighthouse")


def _limits_of_run(run: object) -> dict[str, Any]:
    """Return the limits of a run of ``danaus train``: whoever stands by for it goes by the same."""
    if run is None or not (Path(str(run)) / "config.toml").exists():
        return {}
    # Loads what reads the settings of a run, which a loop of one's own does not have.
    from danaus.app.run_folder import RunFolder
    from danaus.app.settings import saved

    settings = saved(RunFolder.open(Path(str(run))))
    quorum = settings.quorum
    return {
        "expected_replicas": settings.replicas,
        "min_replicas": quorum.min_replicas,
        "join_limit_s": quorum.join_limit_s,
        "heartbeat_limit_s": quorum.heartbeat_limit_s,
        "fence_limit_s": quorum.fence_limit_s,
        "hold_limit_s": quorum.hold_limit_s,
        "hold_share": quorum.hold_share,
        "replace_stragglers": settings.straggler.replace,
        **({} if settings.hang_limit_s is None else {"hang_limit_s": settings.hang_limit_s}),
    }


def _secret_path(asked: LighthouseCommand) -> Path:
    if asked.secret is not None:
        return asked.secret
    if asked.run is None:
        raise ConfigError("there is no secret", "", "name it by --secret, or a folder by --run")
    return RunFiles(asked.run.absolute()).secret


def _options(asked: LighthouseCommand) -> ServiceOptions:
    """Return what the service is started with."""
    files = RunFiles.prepare(asked.run) if asked.run is not None else None
    if files is None and not (asked.folder and asked.listen and asked.secret):
        raise ConfigError(
            "danaus lighthouse needs a place",
            "--run FOLDER, or --folder, --listen and --secret",
            "as in: danaus lighthouse --run run --expected-replicas 3",
        )
    folder = asked.folder or (files.quorum if files is not None else Path())
    names = {each.name for each in fields(asked)} & {each.name for each in fields(_POLICY)}
    policy = {name: getattr(asked, name) for name in names}
    return ServiceOptions(
        folder=folder.absolute(),
        address=asked.listen or (files.service_address if files is not None else ""),
        secret_path=_secret_path(asked),
        journal=asked.journal or (files.journal if files is not None else None),
        ledger=asked.ledger or folder.absolute().parent / "ledger",
        resume=asked.resume,
        quorum=QuorumSettings(**policy, heal_divergence=asked.heal),
        progress=ProgressSettings(hang_limit_s=asked.hang_limit_s),
        watches_input=False,
        lease=_lease(asked),
        lease_s=asked.lease_s,
        standby=asked.standby,
        http=asked.http,
        http_open_reading=asked.http_open_reading,
    )


def _lease(asked: LighthouseCommand) -> LeasePlace | None:
    if asked.lease == "none":
        return None
    return LeasePlace(asked.lease, asked.lease_ca, asked.lease_cert, asked.lease_token_file)


def _say(line: str) -> None:
    print(f"lighthouse {line}", flush=True)
