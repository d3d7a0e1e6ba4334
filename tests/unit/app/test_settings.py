"""A run's own settings refuse what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.app.crew_file import CrewRecord, write_crew
from danaus.app.resuming import resumed
from danaus.app.run_folder import RunFolder
from danaus.app.settings import (
    BenchConfig,
    DemoConfig,
    QuorumConfig,
    RestartConfig,
    RunConfig,
    fleet_of,
    saved,
)
from danaus.app.undisturbed import alone
from danaus.core.config import load, toml_text
from danaus.core.errors import ConfigError
from danaus.train.config import StepConfig
from danaus.train.presets import preset


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


def test_a_preset_is_a_base_that_files_and_flags_go_above(tmp_path: Path) -> None:
    toml = tmp_path / "mine.toml"
    toml.write_text("replicas = 4\n[step]\nseed = 5\n")
    base = preset("debug_slow")
    run = load(RunConfig, base=base, toml=toml, overrides={"step.seed": "6"})

    assert run.model == base.model
    assert (run.replicas, run.step.seed) == (4, 6)
    assert run.step.num_microbatches == base.step.num_microbatches
    assert run.replica_ids == ("replica-0", "replica-1", "replica-2", "replica-3")


def test_settings_survive_their_own_file(tmp_path: Path) -> None:
    run = RunConfig(replicas=2, run_dir=Path("/somewhere"), hang_limit_s=None)
    (tmp_path / "config.toml").write_text(toml_text(run))

    assert load(RunConfig, toml=tmp_path / "config.toml") == run


def test_a_demo_needs_somebody_who_goes_on() -> None:
    with pytest.raises(ConfigError, match="a demo with 1 replica: at least 2"):
        DemoConfig(replicas=1)
    with pytest.raises(ConfigError, match="--no-heal has nothing to leave unhealed"):
        DemoConfig(heal=False)
    with pytest.raises(ConfigError, match=r"a demo with step\.bits off: exact"):
        DemoConfig(step=StepConfig(bits="off"))
    assert DemoConfig().hang_limit_s == 3.0


def test_a_resumed_run_keeps_what_its_bits_depend_on() -> None:
    before = RunConfig()

    assert resumed(before, {"hang-limit-s": "7"}).hang_limit_s == 7
    assert resumed(before, {"step.seed": "1"}) == before
    with pytest.raises(ConfigError, match=r"optim\.lr was 0\.003 when this run began and cannot"):
        resumed(before, {"optim.lr": "0.1"})
    with pytest.raises(ConfigError, match=r"unknown setting 'optim\.rl'"):
        resumed(before, {"optim.rl": "0.1"})


def test_a_bench_names_models_that_exist() -> None:
    with pytest.raises(ConfigError, match="no preset is called 'huge'"):
        BenchConfig(presets=("huge",))


def test_what_faults_can_hit_are_the_replicas_that_the_runs_folder_names(tmp_path: Path) -> None:
    config = RunConfig(replicas=5, run_dir=tmp_path / "run")
    folder = RunFolder.create(tmp_path / "run", config)
    assert fleet_of(config, folder).places == (0, 1, 2, 3, 4)
    write_crew(folder.control, CrewRecord((0, 2, 3, 4)))
    assert fleet_of(saved(folder), folder).places == (0, 2, 3, 4)
    folder.release()


def test_the_run_that_a_campaign_is_held_against_is_not_hung_because_the_machine_is_busy(
    tmp_path: Path,
) -> None:
    struck = RunConfig(replicas=3, hang_limit_s=3.0, run_dir=tmp_path / "run")
    beside = alone(struck, tmp_path / "undisturbed")
    assert (beside.replicas, beside.hang_limit_s) == (1, 600.0)
