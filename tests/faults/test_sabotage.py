"""Q-9: a bit that flips in one replica's memory is noticed at the next vote, and healed."""

import pytest

from danaus.app.chaos_fault import Fault
from danaus.app.chaos_inside import make_inside
from danaus.app.events import Event, FaultKind
from danaus.core.errors import Diverged
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Moment
from danaus.testing.faults import Strike, WaitForDisk
from danaus.testing.runs import Shape, finish, small_run
from danaus.testing.watching import RunWatch

FLIPPED_IN = 6


@pytest.fixture
def sabotaged(tmp_path):
    """Return a run in which one bit flips in one replica while a step is computed."""

    def make(replicas, ranks=1, **more):
        path = tmp_path / "run"
        flip = make_inside(Fault(kind=FaultKind.FLIP_BIT, at_step=FLIPPED_IN))
        shape = Shape(replicas=replicas, ranks=ranks, leaves=5, steps=12)
        return small_run(
            path, shape, observers={"replica-0": (WaitForDisk(),), "replica-1": (flip,)}, **more
        )

    return make


@pytest.mark.timeout(120)
def test_the_minority_heals_from_the_majority(sabotaged, undisturbed):
    run = sabotaged(3)
    result = finish(run, limit_s=90)
    assert result.sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    (flip,) = watch.strikes()
    (found,) = watch.events(Event.DIVERGENCE_FOUND)
    assert found["step"] == FLIPPED_IN - 1, "the state before the step, at its vote"
    assert found["minority"] == ["replica-1"]
    (healed,) = watch.events(Event.HEALED)
    assert (healed["replica"], healed["incarnation"]) == ("replica-1", 0)
    assert healed["mono"] - flip["mono"] < 2.0
    assert not watch.deaths()
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems


@pytest.mark.timeout(120)
def test_without_a_majority_all_return_to_the_checkpoint_and_replay(sabotaged, undisturbed):
    run = sabotaged(2)
    assert finish(run, limit_s=90).sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    (found,) = watch.events(Event.DIVERGENCE_FOUND)
    assert (found["step"], found["minority"]) == (FLIPPED_IN - 1, [])
    resumed = watch.events(Event.RUN_RESUMED)
    assert {(line["replica"], line["step"]) for line in resumed} == {
        ("replica-0", 4), ("replica-1", 4)
    }  # fmt: skip
    assert not watch.deaths()
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_without_healing_the_run_ends_and_names_the_step(sabotaged):
    run = sabotaged(3, heal=False)
    with pytest.raises(Diverged, match=f"after step {FLIPPED_IN - 1}") as raised:
        finish(run, limit_s=90)
    assert raised.value.step == FLIPPED_IN - 1
    prints = raised.value.fingerprints
    assert prints["replica-0"] == prints["replica-2"] != prints["replica-1"]
    (failed,) = RunWatch(run.folder).events(Event.RUN_FAILED)
    assert failed["error"] == "Diverged"


@pytest.mark.timeout(120)
def test_a_checkpoint_of_a_flipped_bit_is_never_restored(tmp_path, undisturbed):
    path = tmp_path / "run"
    # As the writer of the checkpoint of step 4 applies that step; later all die at once.
    flip = make_inside(Fault(kind=FaultKind.FLIP_BIT, at_step=4, at_phase="apply"))
    die = Strike(Moment.VOTED, 6, incarnation=0)
    observers = {"replica-0": (flip, WaitForDisk(), die), "replica-1": (die,), "replica-2": (die,)}
    run = small_run(path, Shape(replicas=3, leaves=5, steps=12), observers=observers)
    assert finish(run, limit_s=90).sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    assert len(watch.deaths()) == 3
    assert {line["step"] for line in watch.events(Event.CHECKPOINT_FAILED)} == {4}
    assert {line["step"] for line in watch.events(Event.RUN_RESUMED)} == {0}
