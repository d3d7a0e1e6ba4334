"""H-5: the disk takes its time or fails, writers die at any moment, and the run goes on."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from danaus.app import chaos_damage
from danaus.app.events import Event
from danaus.core.clock import Deadline
from danaus.core.errors import Diverged
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Observer
from danaus.testing.faults import Pace, WaitForDisk
from danaus.testing.runs import Shape, finish, running, small_run
from danaus.testing.watching import RunWatch
from danaus.train import checkpoint
from danaus.train.checkpoint import Checkpoints
from danaus.train.config import ParallelConfig
from danaus.train.metrics import read_metrics
from danaus.train.plain import run_plain
from danaus.train.trainer import Trainer

STEPS = 12
STRUCK = "000008"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def before(name, is_it):
    """Have the process die just before a file of a checkpoint is written or synced."""
    real = getattr(checkpoint, name)

    def struck(path, *args):
        if STRUCK in str(path) and is_it(path):
            die()
        return real(path, *args)

    setattr(checkpoint, name, struck)


def in_the_middle_of_the_part():
    real = checkpoint.write_part

    def struck(path, snapshot, stop):
        asked = []

        def stop_or_die():
            asked.append(1)
            if STRUCK in str(path) and len(asked) == 3:
                die()
            return stop()

        return real(path, snapshot, stop_or_die)

    checkpoint.write_part = struck


def before_its_name_is_safe():
    real = checkpoint.sync_folder

    def struck(folder):
        if (folder / f"step-{STRUCK}").exists():
            die()
        return real(folder)

    checkpoint.sync_folder = struck


MOMENTS = {
    "part": (in_the_middle_of_the_part, 4),
    "receipt": (lambda: before("write_synced", lambda path: ".receipt" in path.name), 4),
    "manifest": (lambda: before("write_synced", lambda path: "manifest" in path.name), 4),
    "rename": (lambda: before("sync_folder", lambda path: ".writing" in path.name), 4),
    "named": (before_its_name_is_safe, 8),
}
DAILY = ("part",)
"""The others are left to the nightly command."""


class Dies:
    """Makes the first life of a worker die as it writes the checkpoint of step 8."""

    def __init__(self, moment):
        self.moment = moment

    def __call__(self, work):
        if work.place.incarnation == 0:
            MOMENTS[self.moment][0]()
        return Observer()


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "moment",
    [pytest.param(each, marks=[] if each in DAILY else pytest.mark.slow) for each in MOMENTS],
)
def test_killed_at_any_moment_of_the_write_it_goes_on_from_a_whole_one(
    moment, tmp_path, undisturbed
):
    observers = {"replica-0": (Dies(moment), WaitForDisk())}
    shape = Shape(replicas=1, leaves=2, steps=STEPS)
    run = small_run(tmp_path / "run", shape, observers=observers)
    assert finish(run, limit_s=120).sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    (death,) = watch.events(Event.PROCESS_EXITED, expected=False)
    assert death["signal"] == "SIGKILL"
    (resumed,) = watch.events(Event.RUN_RESUMED)
    assert resumed["step"] == MOMENTS[moment][1]
    left = {path.name for path in run.folder.checkpoints.iterdir() if ".void" not in path.name}
    assert left == {"step-000008", "step-000012"}, "nothing half written is left"


class Blocks:
    """Makes a worker whose first checkpoint is on its way until a file is there."""

    def __init__(self, until):
        self.until = until

    def __call__(self, work):
        real = checkpoint.write_part

        def blocked(*args):
            deadline = Deadline.after(90)
            while not self.until.exists() and not deadline.passed:
                threading.Event().wait(0.02)
            return real(*args)

        checkpoint.write_part = blocked
        return Observer()


@pytest.mark.timeout(150)
def test_a_disk_that_blocks_delays_no_step_and_the_last_one_is_there_in_the_end(
    tmp_path, undisturbed
):
    pace = Pace(0.3, until=tmp_path / "go")
    observers = {"replica-0": (Blocks(tmp_path / "go"), pace), "replica-1": (pace,)}
    run = small_run(tmp_path / "run", Shape(replicas=2, steps=40), observers=observers)
    with running(run) as going:
        watch = going.watch
        watch.until("two that were due", lambda: watch.events(Event.CHECKPOINT_SKIPPED)[1:], 90)
        assert not watch.events(Event.CHECKPOINT_WRITTEN), "the first is on its way"
        (tmp_path / "go").touch()
        assert going.result(60).sha256 == undisturbed(run)
    skipped = [line["step"] for line in watch.events(Event.CHECKPOINT_SKIPPED)]
    assert skipped[:2] == [8, 12]
    written = [line["step"] for line in watch.events(Event.CHECKPOINT_WRITTEN)]
    assert (written[0], written[-1]) == (4, 40)
    assert not watch.deaths()
    assert not watch.events(Event.HANG_NOTICED)
    trainer = Trainer(run.config)
    assert Checkpoints(run.folder.checkpoints, identity=trainer.identity).latest_valid() == 40


def flips_in_its_last_update(work):
    """Have the update of the run's last step go wrong by one bit in a worker's first life."""
    apply = work.apply

    def wrong(step, *args):
        result = apply(step, *args)
        if step == STEPS:
            chaos_damage.flip(next(iter(work.state().values())))
        return result

    work.apply = wrong
    return Observer()


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("replicas", [2, 3])
def test_the_last_checkpoint_is_of_the_state_that_all_have_ended_with(
    tmp_path, undisturbed, replicas
):
    observers = {"replica-0": (flips_in_its_last_update,)}
    run = small_run(tmp_path / "run", Shape(replicas=replicas, steps=STEPS), observers=observers)
    if replicas == 2:  # both go back, and one of them goes wrong again
        with pytest.raises(Diverged, match=f"step {STEPS}"):
            finish(run, limit_s=120)
        return
    assert finish(run, limit_s=120).sha256 == undisturbed(run)
    trainer = Trainer(run.config)
    checkpoints = Checkpoints(run.folder.checkpoints, identity=trainer.identity)
    assert checkpoints.latest_valid() == STEPS
    trainer.load(checkpoints.read(STEPS)[0])
    assert trainer.sha256() == undisturbed(run)


def gathered(folder, step, size):
    """Return the whole state that some ranks wrote, read by the format's own library."""
    paths = [folder / f"step-{step:06d}" / f"rank-{r}-of-{size}.safetensors" for r in range(size)]
    parts = [load_file(path) for path in paths]
    return {
        name: parts[0][name] if name.startswith("progress") else torch.cat([p[name] for p in parts])
        for name in parts[0]
    }


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(("before", "after"), [(2, 1)])
def test_a_run_that_is_resumed_may_be_sharded_otherwise(tmp_path, before, after):
    pace = Pace(0.3, until=tmp_path / "never")
    observers = {f"replica-{n}": (pace,) for n in range(2)}
    run = small_run(tmp_path / "run", Shape(replicas=2, ranks=before), observers=observers)
    with running(run) as going:
        watch = going.watch
        watch.until("a checkpoint", lambda: watch.events(Event.CHECKPOINT_WRITTEN), 60)
    step = watch.events(Event.CHECKPOINT_WRITTEN)[-1]["step"]
    state = gathered(run.folder.checkpoints, step, before)
    config = replace(run.config, parallel=ParallelConfig(shard=after))
    result = finish(replace(run.again(), config=config), limit_s=100)
    assert {line["step"] for line in watch.events(Event.RUN_RESUMED)} == {step}
    assert result.step == STEPS
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    assert any("ranks of a replica" in note.what for note in told.notes)
    trainer = Trainer(replace(run.config, parallel=ParallelConfig()))
    trainer.load(state)
    results = []
    run_plain(trainer, STEPS - step, results.append)
    # From there on the bits are those of the new number of ranks.
    if after == 1:
        assert result.sha256 == trainer.sha256()
    else:
        losses = [each["loss"] for each in read_metrics(run.folder.metrics_path("replica-0"))]
        expected = [each.loss for each in results]
        assert losses[-len(expected) :] == pytest.approx(expected, rel=1e-5)
