"""Which settings of a run may change when it goes on.

Owns ``resumed``.
"""

from __future__ import annotations

from collections.abc import Mapping

from danaus.app.settings import QuorumConfig, RunConfig, StragglerConfig
from danaus.core.config import load, names
from danaus.core.errors import ConfigError


def resumed(before: RunConfig, overrides: Mapping[str, str]) -> RunConfig:
    """Return the settings of a run that goes on, with those that may change changed.

    Args:
        before: As its folder holds them.
        overrides: Asked for now, by dotted name.

    Raises:
        ConfigError: One of them would change the bits, the text or the run's members.
    """
    now = load(type(before), base=before, overrides=overrides)
    for name in overrides:
        was, to = _value(before, name), _value(now, name)
        if was != to and name.replace("-", "_") not in _MAY_CHANGE:
            raise ConfigError(
                what=f"{name} was {was} when this run began and cannot become {to}",
                needed="what it went on to compute would not be the same training",
                to_do="leave it as it was, or start a new run",
            )
    return now


_MAY_CHANGE = frozenset(
    (
        "hang_limit_s",
        "audit_rate",
        "hosts",
        "secret",
        "bind",
        "host_wait_s",
        "alone_limit_s",
        "grace_s",
        "detached",
        "watchdog",
        "spares",
        "repair",
        "parallel.shard",
        "checkpoint.every_s",
        "checkpoint.every_steps",
        "checkpoint.keep",
        "restart.intensity",
        "restart.period_s",
        "restart.backoff_s",
        *(f"quorum.{name}" for name in names(QuorumConfig)),
        *(f"straggler.{name}" for name in names(StragglerConfig)),
    )
)


def _value(settings: object, name: str) -> object:
    for part in name.replace("-", "_").split("."):
        settings = getattr(settings, part)
    return settings
