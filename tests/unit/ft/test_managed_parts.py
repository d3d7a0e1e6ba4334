"""The small parts of the manager: pending calls, the sampler, the optimiser's words, the work."""

from datetime import timedelta

import pytest
import torch
from torch import nn

from danaus.core.errors import ConfigError, NoQuorum
from danaus.ft.data_parallel import buckets_of
from danaus.ft.gradients import gradients_of
from danaus.ft.managed_calls import operation_of
from danaus.ft.managed_work import ManagedWork
from danaus.ft.manifest import facts_of
from danaus.ft.pending import Pending, seconds_of
from danaus.ft.sampler import DistributedSampler


def test_a_call_completes_once_for_all_who_wait():
    value = torch.ones(1)
    pending = Pending(value)
    assert not pending.wait(0.0)
    assert not pending.wait(timedelta(milliseconds=1))
    chained = pending.get_future().then(lambda done: done.value() + 1)
    assert not pending.is_completed()
    pending.complete()
    pending.complete()
    assert pending.wait()
    assert pending.is_completed()
    assert chained.wait().item() == 2.0
    late = Pending(value)
    late.complete()
    assert late.get_future().value() is value


def test_durations_in_both_spellings():
    assert seconds_of(timedelta(minutes=1)) == seconds_of(60) == 60.0


def test_samplers_of_all_replicas_share_a_set():
    seen = [
        list(DistributedSampler(range(24), replica, 3, group_rank=rank, num_replicas=2, seed=4))
        for replica in range(3)
        for rank in range(2)
    ]
    assert sorted(each for share in seen for each in share) == list(range(24))
    one = DistributedSampler(range(24), 2, 3, shuffle=False)
    assert (one.global_rank, one.global_world_size, list(one)[:2]) == (2, 3, [2, 5])
    with pytest.raises(ConfigError, match="replica_rank is 3 of 3"):
        DistributedSampler(range(24), 3, 3)
    with pytest.raises(ConfigError, match="group_rank is 2 of 2"):
        DistributedSampler(range(24), 0, 3, group_rank=2, num_replicas=2)


def test_operations_by_word_and_by_torchs_name():
    op = torch.distributed.ReduceOp
    assert [operation_of(each) for each in ("avg", op.AVG, op.SUM, op.MAX, op.PRODUCT)] == [
        "avg", "avg", "sum", "max", "product",
    ]  # fmt: skip
    with pytest.raises(ConfigError):
        operation_of("median")


def test_gradients_that_are_not_there_are_zeros():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[1].weight.requires_grad_(False)
    model[0](torch.ones(1, 2)).sum().backward()
    found = gradients_of(model.parameters())
    assert [each.abs().sum().item() > 0 for each in found] == [True, True, False]
    assert found[0].data_ptr() == model[0].weight.grad.data_ptr()
    assert model[1].bias.grad is not None


def test_buckets_begin_with_the_last_layers_and_hold_each_parameter_once():
    sizes = [10, 300_000, 5, 7, 9]
    parameters = [nn.Parameter(torch.empty(size)) for size in sizes]
    buckets = buckets_of(parameters, 1.0)
    assert [each for bucket in buckets for each in bucket] == parameters[::-1]
    assert [len(bucket) for bucket in buckets] == [3, 1, 1]


def work_at(step, value=1.0, **options):
    work = ManagedWork(lambda: None, first_step=step, **options)
    tree = {"user": {"default": {"w": torch.tensor([value]), "noise": torch.rand(1)}}}
    work.capture(tree, step=step, batches_committed=2 * step)
    return work


def test_what_is_learned_is_the_state_until_it_is_loaded_and_after():
    donor, learner = work_at(7, 3.0), work_at(0)
    room = learner.room(facts_of(donor.state()))
    assert not learner.has_learned
    for name, tensor in donor.state().items():
        room[name].copy_(tensor)
    learner.loaded(7)
    assert learner.fingerprint() == donor.fingerprint()
    tree, step, batches = learner.take_learned()
    assert (step, batches, tree["user"]["default"]["w"].item()) == (7, 14, 3.0)
    assert not learner.has_learned
    assert learner.take_learned() is None
    assert learner.fingerprint() == donor.fingerprint()


def test_what_may_differ_is_not_in_the_fingerprint():
    options = {"not_compared": ["*/noise"]}
    assert work_at(1, **options).fingerprint() == work_at(1, **options).fingerprint()
    assert work_at(1).fingerprint() != work_at(1).fingerprint()
    assert work_at(1, 2.0, **options).fingerprint() != work_at(1, **options).fingerprint()


def test_nobody_goes_back_to_where_it_has_left():
    work = work_at(5)
    work.restore(5, 2)
    with pytest.raises(NoQuorum, match="go back to step 4"):
        work.restore(4, 2)
    work.apply(6, torch.empty(0))
    work.restored_for("replicas disagree")
    with pytest.raises(NoQuorum, match="go back to step 5: replicas disagree; start the service"):
        work.restore(5, 2)
