"""T-8: a process that computes wrongly is found by a second one, named by a third, and left out."""

from __future__ import annotations

import pytest

from danaus.app.events import Event
from danaus.core.errors import StepImpossible
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Observer
from danaus.testing.runs import Shape, finish, running, small_run


class Miscompute:
    """Makes a process compute wrongly, and always in the same way.

    Its forward is a little off: nothing that a check of finite numbers would see.

    Args:
        from_step: The first step of which that is so.
        num_forwards: How many forwards are off; None: all.
    """

    def __init__(self, from_step=3, num_forwards=None):
        self.from_step, self.num_forwards = from_step, num_forwards

    def __call__(self, work):
        left = [self.num_forwards]

        def disturb(_module, _args, logits):
            if work.trainer.step + 1 < self.from_step or left[0] == 0:
                return logits
            if left[0] is not None:
                left[0] -= 1
            return logits * 1.0001

        work.trainer.network.register_forward_hook(disturb)
        return Observer()


def run_of(path, replicas, *, ranks=1, **wrong):
    observers = {"replica-1": (Miscompute(**wrong),)}
    shape = Shape(replicas=replicas, ranks=ranks, leaves=4, steps=10)
    return small_run(path, shape, observers=observers, audit_rate=1.0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_that_computes_wrongly_is_named_and_what_comes_out_is_right(
    tmp_path, undisturbed, ranks
):
    run = run_of(tmp_path / "run", 3, ranks=ranks, from_step=1)
    with running(run) as going:
        assert going.result(100).sha256 == undisturbed(run)
        watch = going.watch
    assert {each["replica"] for each in watch.events(Event.MISCOMPUTATION_FOUND)} == {"replica-1"}
    (out,) = watch.events(Event.REPLICA_QUARANTINED)
    assert out["replica"] == "replica-1"
    assert "it computes wrongly, leaf" in out["reason"]
    assert "test this host's memory and device" in out["reason"]
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems


@pytest.mark.timeout(120)
def test_an_error_that_does_not_come_again_costs_a_try_and_nobody(tmp_path, undisturbed):
    run = run_of(tmp_path / "run", 2, from_step=1, num_forwards=1)
    with running(run) as going:
        result = going.result(100)
        watch = going.watch
    assert result.sha256 == undisturbed(run)
    assert not watch.events(Event.REPLICA_QUARANTINED)


@pytest.mark.timeout(120)
def test_where_two_disagree_and_there_is_no_third_the_run_stops_and_says_so(tmp_path):
    run = run_of(tmp_path / "run", 2, from_step=3)
    with pytest.raises(StepImpossible, match="no majority says who is wrong"):
        finish(run)
