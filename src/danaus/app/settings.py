"""What a run is told beside its training: how many replicas, where it lives, its limits.

Owns ``RunConfig``, the app's own settings.  The trainer's settings live beside the trainer's
components; ``app.experiment`` joins both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from danaus.core.errors import ConfigError


@dataclass(frozen=True)
class RestartConfig:
    """How often a dead process is started again before the run gives up (OTP's words).

    Args:
        intensity: Restarts allowed per replica within ``period_s``.
        period_s: The window in which restarts are counted, in seconds.
        backoff_s: Wait before the second restart within the window, in seconds; it doubles
            with each further one.  The first restart is immediate.
    """

    intensity: int = 10
    period_s: float = 60.0
    backoff_s: float = 0.2

    def __post_init__(self) -> None:
        _at_least("restart.intensity", self.intensity, 0)
        _above_zero("restart.period_s", self.period_s)
        _at_least("restart.backoff_s", self.backoff_s, 0)


@dataclass(frozen=True)
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
    """

    min_replicas: int = 1
    join_limit_s: float = 60.0
    heartbeat_s: float = 0.2
    heartbeat_limit_s: float = 5.0
    fence_limit_s: float = 2.0
    hold_limit_s: float = 10.0

    def __post_init__(self) -> None:
        _at_least("quorum.min_replicas", self.min_replicas, 1)
        for name in (
            "join_limit_s",
            "heartbeat_s",
            "heartbeat_limit_s",
            "fence_limit_s",
            "hold_limit_s",
        ):
            _above_zero(f"quorum.{name}", getattr(self, name))


@dataclass(frozen=True)
class RunConfig:
    """How a run is laid out and how it is watched.

    Args:
        replicas: Replica groups that train together; each holds a whole copy of the state.
        run_dir: Folder of the run; default: ``runs/<date-time>-<name>``.
        device: ``auto`` or ``cpu``.
        hang_limit_s: Seconds a process may stand still before it is taken for hung; default:
            ten times the median of the phase, never under 5 s.
        grace_s: Seconds a process has to stop by itself before it is terminated, then killed.
        detached: Workers go on when the controller goes away.
        quorum: Limits of membership.
        restart: How often a dead process is started again.
    """

    replicas: int = 3
    run_dir: Path | None = None
    device: str = "auto"
    hang_limit_s: float | None = None
    grace_s: float = 2.0
    detached: bool = False
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    restart: RestartConfig = field(default_factory=RestartConfig)

    def __post_init__(self) -> None:
        _at_least("replicas", self.replicas, 1)
        _above_zero("grace_s", self.grace_s)
        if self.hang_limit_s is not None:
            _above_zero("hang_limit_s", self.hang_limit_s)
        if self.quorum.min_replicas > self.replicas:
            raise ConfigError(
                what=f"quorum.min_replicas is {self.quorum.min_replicas} but replicas is "
                f"{self.replicas}",
                to_do="start more replicas or lower quorum.min_replicas",
            )


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ConfigError(what=f"{name} is {value}", needed=f"it must be at least {least}")


def _above_zero(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(what=f"{name} is {value}", needed="it must be above 0")
