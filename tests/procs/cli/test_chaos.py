"""``danaus train --chaos`` and ``danaus chaos`` beside it, as two terminals have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.procs.cli.terminal import TINY, Command, sha256_in, text, told

from danaus.app.chaos_log import read_record
from danaus.app.chaos_record import replay
from danaus.app.events import Event

TRAIN = ("train", "debug", *TINY, "--steps=160", "--step.num-microbatches=12")


def struck(run: Path) -> list[str]:
    return [line["kind"] for line in told(run, Event.FAULT_INJECTED)]


def finish(command: Command) -> str:
    assert command.wait(limit_s=90.0) == 0, command.text
    return sha256_in(command.text)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_is_struck_by_its_own_plan_by_two_commands_and_by_a_replay(tmp_path: Path) -> None:
    text(tmp_path)
    plan = ("--chaos", "kill:at_step=5,replica=1", "--chaos=hang:at_step=20,for=100ms")
    with Command(tmp_path, *TRAIN, "--run-dir=a", *plan, "--chaos.seed=3") as train:
        train.wait_for(r"^chaos  kill:replica=1,at_step=5; hang:at_step=20,for=0.1s \(seed 3\)")
        train.wait_for(r"FAULT kill -9 a worker of replica-1")
        with (
            Command(tmp_path, "chaos", "a", "kill_coordinator") as one,
            Command(tmp_path, "chaos", "a", "flip_bit:replica=2", "kill:replica=0") as two,
        ):
            assert one.wait() == 0, one.text
            assert two.wait() == 0, two.text
        with Command(tmp_path, "chaos", "a", "disk_full:replica=2") as impossible:
            assert impossible.wait() == 1, "a worker that cannot do it says so to whoever asked"
        disturbed = finish(train)
    assert "1 struck, 0 missed; record a/chaos/" in one.text
    assert "2 struck, 0 missed; record a/chaos/" in two.text
    assert "one bit of model." in two.text, "what a victim did to itself is heard of"
    assert "which is not filled: a file system of its own" in impossible.text
    assert "0 struck, 1 missed; record a/chaos/" in impossible.text
    kinds = ["flip_bit", "hang", "kill", "kill", "kill_coordinator"]
    assert sorted(struck(tmp_path / "a")) == kinds
    names = {line["fault"] for line in told(tmp_path / "a", Event.FAULT_INJECTED)}
    assert len(names) == len(kinds), "each has a name of its own"

    with Command(tmp_path, *TRAIN, "--run-dir=b") as train:
        train.wait_for(r"train \(quorum 1\.1\)")
        with Command(tmp_path, "chaos", "b", "--replay=a/chaos/1.jsonl") as again:
            assert again.wait() == 0, again.text
        assert finish(train) == disturbed
    first, second = (
        replay(read_record(tmp_path / run / "chaos" / "1.jsonl")).faults for run in "ab"
    )
    assert [(each.kind, each.replica) for each in second] == [
        (each.kind, each.replica) for each in first
    ]
    assert all(now.at_step >= then.at_step for now, then in zip(second, first, strict=True))
    _check_refusals(tmp_path)


def _check_refusals(folder: Path) -> None:
    """Check what is said of a run that is over, and of what cannot be."""
    for words, says in (
        (("chaos", "a", "kill"), "a does not go on: no process of it is alive"),
        (("chaos", "a", "kill:replica=3"), "there is no replica 3"),
        (("chaos", "nowhere", "kill"), "does not exist"),
        (("chaos", "a"), "no fault is named"),
        (("chaos", "a", "partition"), "the network of this run cannot be harmed"),
        (("chaos", "a", "--replay", "text.txt"), "this is not a record of faults"),
        (("train", "debug", "--chaos", "loss"), "the network of this run cannot be harmed"),
        (("train", "debug", "--chaos", "kil"), "did you mean 'kill'?"),
    ):
        with Command(folder, *words) as command:
            assert command.wait() == 2, command.text
        assert says in command.text


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_plan_may_kill_its_own_controller_and_the_run_goes_on_when_it_is_resumed(
    tmp_path,
) -> None:
    text(tmp_path)
    few = (*TRAIN, "--steps=40")
    with Command(tmp_path, *few, "--run-dir=a", "--chaos=kill_controller:at_step=8") as train:
        assert train.wait() == 128 + 9
    assert struck(tmp_path / "a") == ["kill_controller"]
    with Command(tmp_path, "train", "--resume=a") as train:
        resumed = finish(train)
    with Command(tmp_path, *few, "--run-dir=b") as train:
        assert finish(train) == resumed
