"""What a run is told: the trainer's settings, and beside them the app's own.

Owns ``RunConfig`` (how many replicas, where the run lives, its limits), what a demo and a bench
add to it, and how presets, files and flags become one.  The trainer's settings, of which it is an
extension, live beside the trainer's components.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from danaus.actor.restart import Restart
from danaus.app.chaos import Fleet
from danaus.app.crew_file import read_crew
from danaus.app.run_folder import RunFolder
from danaus.core.config import load, toml_text
from danaus.core.errors import AddressRefused, ConfigError
from danaus.core.whole_file import WholeFile
from danaus.ft.audit import AuditPlan
from danaus.ft.stragglers import PaceLimits
from danaus.train.config import TrainConfig
from danaus.train.presets import preset
from danaus.wire.address import Address

SHARED_SECRET = Path("~/.danaus/secret")
"""File of the secret that hosts and whoever starts runs on them share, unless another is named."""
_LONGEST_BACKOFF_S = 2.0
"""So that a replica that always fails uses up its restarts within their window."""


@dataclass(frozen=True, kw_only=True)
class RestartConfig:
    """How often a dead process is started again before the run gives up (OTP's words).

    Args:
        intensity: Restarts allowed per replica within ``period_s``.
        period_s: The window in which restarts are counted, in seconds.
        backoff_s: Wait before the second restart within the window, in seconds; it doubles
            with each further one, up to 2 s.  The first restart is immediate.
    """

    intensity: int = 10
    period_s: float = 60.0
    backoff_s: float = 0.2

    def __post_init__(self) -> None:
        _at_least("restart.intensity", self.intensity, 0)
        _above_zero("restart.period_s", self.period_s)
        _at_least("restart.backoff_s", self.backoff_s, 0)

    def policy(self) -> Restart:
        """Return the same as a supervisor's policy: a replica's ranks live and die together."""
        return Restart(
            strategy="one_for_all",
            intensity=self.intensity,
            period_s=self.period_s,
            backoff_s=self.backoff_s,
            max_backoff_s=_LONGEST_BACKOFF_S,
        )


@dataclass(frozen=True, kw_only=True)
class QuorumConfig:
    """Limits of membership.

    Args:
        min_replicas: Fewer replicas than this take no step; they wait and say so.
        join_limit_s: How long the first quorum waits for replicas that are not there yet, and
            how long a silent one is waited for, in seconds.
        heartbeat_s: How often a replica says that it is alive, in seconds.
        heartbeat_limit_s: Silence after which a host agent is taken for dead, in seconds.
        fence_limit_s: How long a hung process may take to die before it counts as unreachable,
            in seconds.
        hold_limit_s: How long members wait at a boundary for a learner, in seconds.
        hold_share: Members wait for a learner, instead of going on beside it, where that will take
            less than this part of the time by which it shortens a step; 0: never.
        standby: Where ``danaus lighthouse --run RUN --standby`` listens, as in
            tcp:10.77.0.11:4600: it takes over where the run's own service, or its machine, is gone.
    """

    min_replicas: int = 1
    join_limit_s: float = 60.0
    heartbeat_s: float = 0.2
    heartbeat_limit_s: float = 5.0
    fence_limit_s: float = 2.0
    hold_limit_s: float = 10.0
    hold_share: float = 1.0
    standby: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _at_least("quorum.min_replicas", self.min_replicas, 1)
        for text in self.standby:
            try:
                Address.parse(text)
            except AddressRefused as refused:
                raise ConfigError(f"quorum.standby: {text!r}", refused.why) from refused
        for name in (
            "join_limit_s",
            "heartbeat_s",
            "heartbeat_limit_s",
            "fence_limit_s",
            "hold_limit_s",
        ):
            _above_zero(f"quorum.{name}", getattr(self, name))
        _at_least("quorum.hold_share", self.hold_share, 0)


@dataclass(frozen=True, kw_only=True)
class StragglerConfig:
    """When a process counts as slow, and what is done about it.

    Args:
        factor: What it takes for a leaf, as a multiple of the median of the others; 0: nobody
            ever counts as slow.
        steps: Over so many steps.
        replace: Whether its replica ends after a step and is started again.
    """

    factor: float = 1.5
    steps: int = 50
    replace: bool = False

    def __post_init__(self) -> None:
        self.limits()

    def limits(self) -> PaceLimits:
        """Return what the members go by."""
        return PaceLimits(self.factor, self.steps)


@dataclass(frozen=True, kw_only=True)
class RunConfig(TrainConfig):
    """A training run: what it computes, how it is laid out and how it is watched.

    Args:
        replicas: Replica groups that train together; each holds a whole copy of the state.
        run_dir: Folder of the run; none: runs/<date-time>-<name>.  With hosts it must lie on a
            file system that all of them share, under the same path.
        hosts: Addresses of machines on which "danaus host" waits; none: this machine alone.
            Replica i lives on host i, counted around.
        secret: File of the secret that the hosts hold too; none: ~/.danaus/secret.
        bind: Interface, host name or address at which controller and quorum service listen; empty:
            with hosts chosen by asking the route to them, else unix sockets.
        host_wait_s: Seconds after which replicas of a lost host start on another one; none: they
            wait for their own.
        alone_limit_s: Seconds for which hosts go on without being able to tell whether the
            controller lives.
        hang_limit_s: Seconds that a process may stand still before it is taken for hung; none:
            ten times the median of the phase, never under 5 s.
        grace_s: Seconds that a process has to stop by itself before it is terminated.
        detached: Workers go on when the controller goes away, and a watchdog starts it again.
        watchdog: Whether it does; else the run waits for danaus train --resume.
        spares: Processes that are kept ready to become any replica that has to start; each takes
            the memory of one.
        repair: What is started anew where a replica loses one of its ranks: "rank", that one, while
            the others keep process and state, or "replica", all of them; "auto": on CPUs "rank".
        quorum: Limits of membership.
        start_limit_s: Seconds from the fork of a worker to its asking for a quorum.
        restart: How often a dead process is started again.
        straggler: When a process counts as slow.
        audit_rate: Share of the leaves that a second replica computes too, on another host where
            there is one; a third decides where the two differ. 0: none.
    """

    replicas: int = 3
    run_dir: Path | None = None
    hosts: tuple[str, ...] = ()
    secret: Path | None = None
    bind: str = ""
    host_wait_s: float | None = None
    alone_limit_s: float = 600.0
    hang_limit_s: float | None = None
    grace_s: float = 2.0
    detached: bool = False
    watchdog: bool = True
    spares: int = 0
    repair: Literal["auto", "rank", "replica"] = "auto"
    start_limit_s: float = 120.0
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    restart: RestartConfig = field(default_factory=RestartConfig)
    straggler: StragglerConfig = field(default_factory=StragglerConfig)
    audit_rate: float = 0.001

    @property
    def shared_secret(self) -> Path:
        """The file of the secret that the hosts hold too."""
        return (self.secret or SHARED_SECRET).expanduser().absolute()

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least("replicas", self.replicas, 1)
        _at_least("spares", self.spares, 0)
        _above_zero("grace_s", self.grace_s)
        _above_zero("start_limit_s", self.start_limit_s)
        _above_zero("alone_limit_s", self.alone_limit_s)
        self.audit()
        for name in ("hang_limit_s", "host_wait_s"):
            if getattr(self, name) is not None:
                _above_zero(name, getattr(self, name))
        _check_hosts(self.hosts)
        if self.quorum.min_replicas > self.replicas:
            raise ConfigError(
                what=f"quorum.min_replicas is {self.quorum.min_replicas} but replicas is "
                f"{self.replicas}",
                to_do="start more replicas or lower quorum.min_replicas",
            )

    def audit(self) -> AuditPlan:
        """Return which leaves are computed twice."""
        return AuditPlan(self.audit_rate, self.step.seed)

    @property
    def replica_ids(self) -> tuple[str, ...]:
        """The stable names of the replicas."""
        return tuple(f"replica-{i}" for i in range(self.replicas))


@dataclass(frozen=True, kw_only=True)
class DemoConfig(RunConfig):
    """The demo: a small Llama trained through real faults, beside the same training undisturbed.

    Args:
        hang_limit_s: Seconds that a process may stand still before it is taken for hung.
        sabotage: Flip one bit in one replica's parameters.
        heal: Let a replica whose bits differ heal from the others; without, the run ends there.
    """

    hang_limit_s: float | None = 3.0
    sabotage: bool = False
    heal: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.heal and not self.sabotage:
            raise ConfigError(
                what="--no-heal has nothing to leave unhealed", to_do="add --sabotage"
            )
        if self.replicas < 2:
            raise ConfigError(
                what=f"a demo with {self.replicas} replica",
                needed="at least 2, so that one can die and the others go on",
            )
        if self.step.bits == "off":
            raise ConfigError(
                what="a demo with step.bits off",
                needed="exact: it compares every bit of the result",
            )


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """How fast a run recovers, on the demo's model and on one with steps of about 2 s.

    Args:
        out: Where the numbers are written as JSON; none: they are only printed.
        replicas: Replica groups that train together.
        repeats: How often each fault is injected; the worst and the median are shown.
        presets: Which models to measure.
        run_dir: Folder of the runs; none: runs/<date-time>-bench.
    """

    out: Path | None = None
    replicas: int = 3
    repeats: int = 3
    presets: tuple[str, ...] = ("debug", "debug_slow")
    run_dir: Path | None = None

    def __post_init__(self) -> None:
        _at_least("replicas", self.replicas, 2)
        _at_least("repeats", self.repeats, 1)
        for name in self.presets:
            preset(name)


def fleet_of(settings: RunConfig, folder: RunFolder | None = None) -> Fleet:
    """Return what a run has that faults can hit.

    Args:
        settings: The run's.
        folder: The run's, which knows how it was scaled and who was drained; None: it is new.
    """
    crew = None if folder is None else read_crew(folder.control)
    places = range(settings.replicas) if crew is None else crew.places
    return Fleet.of(places, settings.parallel.shard, num_hosts=len(settings.hosts))


@dataclass(frozen=True, kw_only=True)
class CampaignConfig:
    """Hundreds of faults of all kinds on one run, which must end with the undisturbed bits.

    Args:
        faults: How many strike.
        seed: Chooses their order, which of them overlap, and whom they hit.
        every_steps: Steps from one fault to the next, once everybody is back.
        replicas: Replica groups that train together.
        ranks: Processes of each.
        hosts: Hosts of a lab that is made for it, so that networks can be harmed too; replica i
            lives on host i, counted around. 0: this machine, plainly.
        out: Where the figures are written as JSON; none: campaign.json in the folder.
        docs: A page whose section on campaigns is written anew.
        replay: A record of a campaign: strike the same in the same steps.
        run_dir: Folder of the campaign; none: runs/<date-time>-campaign.
    """

    faults: int = 300
    seed: int = 0
    every_steps: int = 15
    replicas: int = 3
    ranks: int = 1
    hosts: int = 0
    out: Path | None = None
    docs: Path | None = None
    replay: Path | None = None
    run_dir: Path | None = None

    def __post_init__(self) -> None:
        _at_least("faults", self.faults, 1)
        _at_least("every_steps", self.every_steps, 5)
        _at_least("replicas", self.replicas, 3)
        _at_least("ranks", self.ranks, 1)
        if self.hosts and self.hosts < 3:
            raise ConfigError(f"hosts is {self.hosts}", "at least 3, or 0 for this machine")


def saved(folder: RunFolder) -> RunConfig:
    """Return the settings that a run's folder holds, of a demo's those of its training.

    With as many replicas as the run was last told to have.

    Raises:
        ConfigError: They are damaged.
    """
    if "sabotage" in folder.config():
        settings = training_of(load(DemoConfig, toml=folder.config_path))
    else:
        settings = load(RunConfig, toml=folder.config_path)
    return _with_crew(folder, settings)


def as_it_runs(folder: RunFolder) -> RunConfig:
    """Return the settings with which a run was begun or resumed last, as ``note_running`` wrote.

    Raises:
        ConfigError: They are damaged, or were never written.
    """
    return _with_crew(folder, load(RunConfig, toml=folder.running_path))


def _with_crew(folder: RunFolder, settings: RunConfig) -> RunConfig:
    """Return settings with as many replicas as the run was last told to have."""
    crew = read_crew(folder.control)
    return settings if crew is None else replace(settings, replicas=len(crew.places))


def note_running(folder: RunFolder, settings: RunConfig) -> None:
    """Write down with which settings a run goes on from now on, for its watchdog."""
    text = toml_text(training_of(settings))
    WholeFile(folder.running_path).write(text.encode())


def training_of(settings: RunConfig) -> RunConfig:
    """Return the settings of the training alone: nothing hits it on purpose."""
    return RunConfig(**{each.name: getattr(settings, each.name) for each in fields(RunConfig)})


def _check_hosts(hosts: tuple[str, ...]) -> None:
    for text in hosts:
        try:
            address = Address.parse(text)
        except AddressRefused as refused:
            raise ConfigError(f"hosts: {text!r} is no address", refused.why) from refused
        if address.scheme != "tcp" or not address.port or hosts.count(text) > 1:
            raise ConfigError(
                f"hosts: {text!r} cannot be joined", "tcp:ADDRESS:PORT, each host once"
            )


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ConfigError(f"{name} is {value}", f"it must be at least {least}")


def _above_zero(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(what=f"{name} is {value}", needed="it must be above 0")
