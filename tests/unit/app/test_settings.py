"""A run's own settings refuse what cannot be."""

from __future__ import annotations

import pytest

from danaus.app.settings import QuorumConfig, RestartConfig, RunConfig
from danaus.core.errors import ConfigError


def test_the_defaults_are_a_run_of_three_replicas() -> None:
    run = RunConfig()

    assert (run.replicas, run.detached, run.quorum.min_replicas) == (3, False, 1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RunConfig(replicas=0), "replicas is 0: it must be at least 1"),
        (lambda: RunConfig(hang_limit_s=0), "hang_limit_s is 0: it must be above 0"),
        (lambda: RunConfig(grace_s=float("nan")), "grace_s is nan: it must be above 0"),
        (lambda: QuorumConfig(min_replicas=0), "quorum.min_replicas is 0: it must be at least 1"),
        (
            lambda: RestartConfig(intensity=-1),
            "restart.intensity is -1: it must be at least 0",
        ),
        (
            lambda: RunConfig(replicas=2, quorum=QuorumConfig(min_replicas=3)),
            (
                "quorum.min_replicas is 3 but replicas is 2; "
                "start more replicas or lower quorum.min_replicas"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: object, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()  # type: ignore[operator]

    assert str(refused.value) == says
