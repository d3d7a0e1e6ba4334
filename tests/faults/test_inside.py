"""Faults inside a worker: who is blamed, what is lost, and that the bits stay the same."""

import os
from pathlib import Path

import pytest

from danaus.app.chaos_inside import make_inside
from danaus.app.chaos_spec import read
from danaus.app.events import Event
from danaus.app.settings import QuorumConfig
from danaus.core.errors import StepImpossible
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Observer
from danaus.testing.faults import Pace, WaitForDisk
from danaus.testing.runs import Shape, finish, running, small_run
from danaus.testing.watching import RunWatch
from danaus.train.metrics import read_metrics

HANG_LIMIT_S = 1.5
PACE_S = 0.3


@pytest.fixture
def struck(tmp_path, undisturbed):
    """Return a function that makes a run, strikes it and returns what it wrote."""

    def run(specs, steps, replicas=3, **more):
        faults = [read(spec) for spec in specs]
        pace = Pace(PACE_S, until=tmp_path / "all have hit", below=replicas)
        observers = {
            f"replica-{place}": (
                *(make_inside(f) for f in faults if f.replica == place),
                pace,
                WaitForDisk(),
            )
            for place in range(replicas)
        }
        shape = Shape(replicas=replicas, leaves=5, steps=steps)
        made = small_run(tmp_path / "run", shape, observers=observers, **more)
        with running(made) as going:
            watch = going.watch
            watch.until("every fault", lambda: len(watch.strikes()) >= len(faults), limit_s=40)
            pace.until.touch()
            result = going.result(90)
        assert result.sha256 == undisturbed(made)
        assert not watch.events(Event.FAULT_MISSED)
        told = verify(merge(made.folder.ledger_paths()))
        assert told.ok, told.problems
        return watch

    return run


def exits(watch):
    """Return who died of what."""
    lines = watch.events(Event.PROCESS_EXITED, expected=False)
    return {(line["replica"], line["incarnation"]): line["signal"] for line in lines}


needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to put a worker into a cgroup of its own"
)


@needs_root
@pytest.mark.timeout(180)
def test_whoever_dies_of_its_own_doing_is_replaced_and_learns_no_wrong_byte(struck):
    watch = struck(
        [
            "segv:replica=0,at_step=3,at_phase=forward",
            "flip_bit:where=transfer,replica=1,at_step=3",
            "oom:replica=1,at_step=9",
        ],
        steps=24,
        replicas=2,
    )
    assert exits(watch) == {("replica-0", 0): "SIGSEGV", ("replica-1", 0): "SIGKILL"}
    reasons = {e["signal"]: e["reason"] for e in watch.events(Event.PROCESS_EXITED, expected=False)}
    assert reasons["SIGKILL"].startswith("out of memory, most likely: ")
    (failed,) = watch.events(Event.DONOR_FAILED)
    assert (failed["replica"], failed["donor"]) == ("replica-0", "replica-1/0#0")
    assert failed["reason"] == "damaged message: the checksum of a payload is wrong"


@pytest.mark.timeout(180)
def test_whoever_hangs_where_no_signal_helps_is_evicted_alone(struck):
    watch = struck(
        [
            "hang:where=gil,replica=0,at_step=3",
            "hang:where=collective,replica=1,at_step=10",
            "hang:where=loader,replica=2,at_step=17",
        ],
        steps=30,
        hang_limit_s=HANG_LIMIT_S,
    )
    assert exits(watch) == {(f"replica-{place}", 0): "SIGKILL" for place in range(3)}


@pytest.mark.timeout(180)
def test_wrong_bits_are_found_wherever_they_are(struck):
    watch = struck(
        [
            "flip_bit:where=optimizer,replica=0,at_step=3",
            "nan:where=gradient,replica=1,at_step=7",
            "flip_bit:where=sum,replica=2,at_step=11",
            "flip_bit:where=exchange,replica=0,at_step=15",
            "nan:where=parameters,replica=1,at_step=19",
        ],
        steps=22,
    )
    diverged = watch.events(Event.DIVERGENCE_FOUND)
    found = [(line["step"], line["minority"]) for line in diverged]
    assert found == [(2, ["replica-0"]), (18, ["replica-1"])]
    refused = {line["step"]: line["reason"] for line in watch.events(Event.STEP_REFUSED)}
    assert refused.keys() == {7, 11, 19}
    assert refused[7].startswith("replica-1/0#0 refused: its own share, leaves 2 to 3, is not fin")
    assert refused[11].startswith("reduced gradients differ at rank 0: ")
    assert refused[11].endswith(" at replica-2/0#0"), "the one that differs from the two others"
    (reason,) = {line["reason"] for line in watch.events(Event.STEP_DISCARDED, step=15)}
    assert "lost replica-0/0#0: damaged message: the checksum of a payload is wrong" in reason
    healed = [(line["replica"], line["incarnation"]) for line in watch.events(Event.HEALED)]
    assert healed == [("replica-0", 0), ("replica-1", 0)]
    assert not exits(watch)


@pytest.mark.timeout(180)
def test_a_checkpoint_that_rots_on_the_disk_is_refused_for_an_older_one(struck):
    dies = "kill:at_step=11,at_phase=voted,replica="
    watch = struck(
        ["flip_bit:where=checkpoint,replica=0,at_step=10", dies + "0", dies + "1"],
        steps=14,
        replicas=2,
    )
    refused = watch.events(Event.CHECKPOINT_REFUSED)
    assert {line["step"] for line in refused} == {8}
    assert all("its bytes differ from their checksum" in line["reason"] for line in refused)
    assert {line["step"] for line in watch.events(Event.RUN_RESUMED)} == {4}


@pytest.mark.timeout(180)
def test_clocks_that_jump_by_an_hour_and_a_slow_replica_change_nothing(struck):
    watch = struck(
        [
            "clock_jump:replica=0,at_step=3,amount=3600s",
            "clock_jump:replica=1,at_step=5,amount=-3600s",
            "clock_jump:where=monotonic,replica=2,at_step=7",
            "slow:replica=0,at_step=9,amount=5x,for=2s",
        ],
        steps=14,
    )
    assert not exits(watch)
    assert not watch.events(Event.HANG_NOTICED)
    jumped = ("replica-0", "replica-1")
    lines = [line for name in jumped for line in read_metrics(watch.folder.metrics_path(name))]
    assert (
        max(line["at"] - line["mono"] for line in lines)
        - min(line["at"] - line["mono"] for line in lines)
        < 60
    ), "a day that is set tears no record apart"


@needs_root
@pytest.mark.timeout(180)
def test_whoever_cannot_even_be_killed_is_left_behind(struck):
    if not Path("/sys/fs/cgroup/freezer/cgroup.procs").exists():
        pytest.skip("needs the freezer of cgroup v1, that keeps a process from being killed")
    quorum = QuorumConfig(fence_limit_s=0.5)
    hang = "hang:where=kernel,replica=1,at_step=5,for=60s"
    watch = struck([hang], steps=12, hang_limit_s=HANG_LIMIT_S, quorum=quorum)
    assert not exits(watch)
    (noticed,) = watch.events(Event.HANG_NOTICED)
    assert (noticed["replica"], noticed["incarnation"]) == ("replica-1", 0)
    left = [line["reason"] for line in watch.events(Event.QUORUM_ANNOUNCED)][1]
    assert "replica-1 is out of reach" in left
    assert "not killed within 0.5 s" in left
    (stuck,) = watch.events(Event.PROCESS_STUCK)
    (strike,) = watch.strikes()
    assert (stuck["replica"], stuck["pids"]) == ("replica-1", [strike["pid"]])


class Broken:
    """Makes an observer on whose last rank no gradient is a number, from a step on."""

    def __init__(self, step, incarnations, ranks=1):
        self.step, self.incarnations, self.ranks = step, incarnations, ranks

    def __call__(self, work):
        compute = work.compute_leaf

        def broken(step, microbatches):
            gradient = compute(step, microbatches)
            return gradient.fill_(float("nan")) if step >= self.step else gradient

        last = work.place.rank == self.ranks - 1
        if last and work.place.incarnation in self.incarnations:
            work.compute_leaf = broken
        return Observer()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_replica_that_alone_computes_no_numbers_is_replaced(tmp_path, undisturbed):
    pace = Pace(PACE_S, until=tmp_path / "never", below=3)
    broken = Broken(4, range(1), ranks=2)
    observers = {"replica-1": (broken, pace), "replica-0": (pace,)}
    shape = Shape(ranks=2, leaves=7, steps=40)
    run = small_run(tmp_path / "run", shape, observers=observers)
    assert finish(run, limit_s=90).sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    (failed,) = watch.events(Event.REPLICA_FAILED)
    assert failed["replica"] == "replica-1"
    assert failed["reason"].startswith("step 4: replica-1/1#0 refused: its own share, leaves ")
    assert len(watch.events(Event.STEP_REFUSED, replica="replica-0")) == 2
    assert not watch.events(Event.HANG_NOTICED), "its sibling waits for nobody"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_step_without_numbers_wherever_it_is_computed_ends_the_run(tmp_path):
    observers = {f"replica-{place}": (Broken(4, range(9)),) for place in range(2)}
    run = small_run(tmp_path / "run", Shape(replicas=2), observers=observers)
    with pytest.raises(StepImpossible, match=r"leaves 0 to 1, is not finite.*3 times") as raised:
        finish(run)
    assert raised.value.step == 4
    (failed,) = RunWatch(run.folder).events(Event.RUN_FAILED)
    assert failed["error"] == "StepImpossible"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_bit_that_flips_in_a_gradient_is_seen_by_nobody(tmp_path, undisturbed):
    """T-8: what goes into the sum is the same everywhere; only the audit would find it."""
    flip = make_inside(read("flip_bit:where=gradient,at_step=3"))
    run = small_run(tmp_path / "run", Shape(replicas=2, steps=6), observers={"replica-1": (flip,)})
    result = finish(run)
    assert result.sha256 != undisturbed(run)
    watch = RunWatch(run.folder)
    assert len(watch.strikes()) == 1
    assert not watch.events(Event.DIVERGENCE_FOUND) + watch.events(Event.STEP_REFUSED)
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, "all members agree about the wrong bits"
