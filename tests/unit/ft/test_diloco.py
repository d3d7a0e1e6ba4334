"""DiLoCo over a manager in memory: exact histories, means of every tensor, votes against it."""

import functools

import pytest
import torch
from tests.unit.ft.apart import (
    CASE_IDS,
    CASES,
    Net,
    Scalar,
    each_apart,
    hand_over,
    managers,
    run_case,
    train,
    weights,
)
from torch import nn

from danaus.collectives.quantising import error_bound
from danaus.core.errors import ConfigError
from danaus.ft import DiLoCo


@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=CASE_IDS)
def test_histories_are_exact(case, num):
    each_apart(num, lambda manager, _: run_case(manager, case))


def test_histories_are_exact_in_buckets_and_in_a_byte_each():
    """A scalar is the largest of its block, and comes back as it was."""
    each_apart(2, lambda manager, _: run_case(manager, CASES[3], should_quantize=True))
    each_apart(2, lambda manager, _: run_case(manager, CASES[4], use_bucketization=True))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_one_replica_that_meets_itself_each_step_trains_plainly(make):
    plain, apart = Net(), Net()
    train(plain, make(plain.parameters(), lr=0.05), range(20))
    inner = make(apart.parameters(), lr=0.05)
    with DiLoCo(managers(1)[0], [apart], inner, torch.optim.SGD(apart.parameters(), lr=1.0), 1):
        train(apart, inner, range(20))
    torch.testing.assert_close(weights(apart), weights(plain), rtol=1e-6, atol=1e-6)
    assert all(each.grad is not None for each in apart.parameters())  # as a plain loop has them


def one_period(num, dtype=torch.float32, **options):
    """Let replicas with different data meet once; return their nets and what they brought."""

    def run(manager, replica):
        net = Net(dtype=dtype)
        begun = [each.detach().clone() for each in net.parameters()]
        alone = Net(dtype=dtype)
        inner = torch.optim.SGD(net.parameters(), lr=0.05)
        train(alone, torch.optim.SGD(alone.parameters(), lr=0.05), range(3), replica)
        outer = torch.optim.SGD(net.parameters(), lr=1.0)
        with DiLoCo(manager, [net], inner, outer, sync_every=3, **options):
            train(net, inner, range(3), replica)
        pairs = zip(begun, alone.parameters(), strict=True)
        return net, [a.double() - b.detach().double() for a, b in pairs]

    return each_apart(num, run)


BUCKETS = [{}] + [
    {"use_bucketization": True, "bucket_cap_mb": cap / 2**20} for cap in (4, 12, 400, 1200, 10**6)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", BUCKETS, ids=lambda o: str(o.get("bucket_cap_mb", "none")))
def test_every_tensor_is_averaged_whatever_the_buckets(options, dtype):
    """Buckets of one number, tensors larger than a bucket, several in one, all in one."""
    found = one_period(3, dtype=dtype, **options)
    brought = [each for _, each in found]
    limits = {} if dtype != torch.bfloat16 else {"rtol": 0.02, "atol": 0.02}
    for at, start in enumerate(Net(dtype=dtype).parameters()):
        mean = sum(each[at] for each in brought) / 3
        for net, _ in found:
            here = list(net.parameters())[at].detach().double()
            torch.testing.assert_close(here, start.detach().double() - mean, **limits)
            assert torch.equal(here, list(found[0][0].parameters())[at].detach().double())


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("options", BUCKETS[::2], ids=lambda o: str(o.get("bucket_cap_mb", "none")))
def test_quantised_means_are_within_the_bound_and_equal_everywhere(options, kind):
    found = one_period(3, should_quantize=kind, **options)
    exact = one_period(3)[0][0]
    assert all(torch.equal(weights(net), weights(found[0][0])) for net, _ in found)
    whole = not options.get("use_bucketization")
    error = (weights(found[0][0]) - weights(exact)).abs()
    assert error.max() > 0
    for brought in (each for _, each in found):
        flat = torch.cat([each.flatten() for each in brought])
        bounds = (
            torch.cat([error_bound(each.flatten(), kind) for each in brought])
            if whole
            # However blocks lie: no number's step is larger than if the largest were in its block.
            else flat.abs().max() * (2.0**-4 if kind == "fp8" else 1 / 254)
        )
        error = error - bounds / 3
    assert error.max() <= 1e-5


def test_true_is_int8():
    one, other = (one_period(2, should_quantize=how)[0][0] for how in (True, "int8"))
    assert torch.equal(weights(one), weights(other))


def test_spares_add_nothing_and_hold_the_same():
    def run(manager, replica, **options):
        net = Scalar()
        inner = torch.optim.SGD(net.parameters(), lr=1.0)
        outer = torch.optim.SGD(net.parameters(), lr=1.0)
        with DiLoCo(manager, [net], inner, outer, sync_every=1, **options):
            net.w.grad = torch.tensor(float(replica))
            inner.step()
        return net.w.item()

    assert each_apart(3, run, spares=["c/0#0"]) == [0.5] * 3
    quantised = functools.partial(run, should_quantize=True)
    assert each_apart(3, quantised, spares=["c/0#0"]) == [0.5] * 3


@pytest.mark.parametrize("delay", [0, 1])
def test_a_vote_against_it_changes_nothing_and_the_next_is_on_the_same(delay):
    """One replica reports an error in the second outer step; the end is as if it had not."""

    def run(manager, replica, spoilt):
        net, seen = Net(), []
        inner = torch.optim.AdamW(net.parameters(), lr=0.05)
        outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        vote, votes = manager.should_commit, iter(range(1000))

        def should_commit():
            if next(votes) == 1 and spoilt:
                if replica == 1:
                    manager.report_error(ValueError("no good batch"))
                before = weights(net)
                assert not vote()
                assert torch.equal(weights(net), before)
                seen.append(inner.state_dict()["state"][0]["step"].item())
                return False
            return vote()

        manager.should_commit = should_commit
        options = {"fragment_sync_delay": delay, "fragment_update_alpha": 0.25}
        with DiLoCo(manager, [net], inner, outer, sync_every=3, **options):
            train(net, inner, range(9), replica)
        assert seen == ([6] if spoilt else [])
        assert manager.current_step() == 3
        return weights(net)

    spoilt = each_apart(2, functools.partial(run, spoilt=True))
    clean = each_apart(2, functools.partial(run, spoilt=False))
    assert all(torch.equal(a, b) for a, b in zip(spoilt, clean, strict=True))


@pytest.mark.parametrize("shared_outer", [True, False])
def test_a_fragment_steps_alone(shared_outer):
    """Gradients of the other fragments are there after the inner step, and are not stepped with."""
    parts = [Scalar(), Scalar()]
    inner = torch.optim.SGD([each.w for each in parts], lr=0.0)
    outer = torch.optim.SGD([each.w for each in parts], lr=1.0)
    outers = [torch.optim.SGD(each.parameters(), lr=1.0) for each in parts]
    with DiLoCo(managers(1)[0], parts, inner, outer if shared_outer else outers, sync_every=2):
        for each in parts:
            each.w.grad = torch.tensor(5.0)
        inner.step()
        inner.step()
    assert [each.w.item() for each in parts] == [1.0, 1.0]
    assert [each.w.grad.item() for each in parts] == [5.0, 5.0]


def test_steps_count_only_inside():
    (manager,) = managers(1)
    net = Scalar()
    inner, outer = (torch.optim.SGD(net.parameters(), lr=1.0) for _ in range(2))
    diloco = DiLoCo(manager, [net], inner, outer, sync_every=2)
    net.w.grad = torch.tensor(1.0)
    inner.step()
    with diloco:
        inner.step()
        with pytest.raises(ConfigError, match="entered twice"), diloco:
            pass
    inner.step()
    assert manager.current_step() == 0
    with diloco:  # it goes on where it was left
        inner.step()
    assert manager.current_step() == 1


def test_a_state_goes_over_whole():
    """Weights, buffers, both optimisers, backups and the place in the schedule."""

    def built():
        torch.manual_seed(1)
        parts = [nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))]
        parameters = [each for part in parts for each in part.parameters()]
        inner = torch.optim.AdamW(parameters, lr=0.1)
        outers = [torch.optim.SGD(each.parameters(), lr=0.5, momentum=0.9) for each in parts]
        (manager,) = managers(1)
        diloco = DiLoCo(manager, parts, inner, outers, sync_every=4, fragment_update_alpha=0.5)
        return parts, inner, manager, diloco

    def step(parts, inner, at):
        inner.zero_grad()
        draw = torch.Generator().manual_seed(at)
        parts[1](parts[0](torch.randn(6, 3, generator=draw))).square().sum().backward()
        inner.step()

    donor, learner = built(), built()
    with donor[3]:
        for at in range(6):
            step(*donor[:2], at)
        hand_over(donor[2], learner[2])
        with learner[3]:
            for at in range(6, 12):
                step(*donor[:2], at)
                step(*learner[:2], at)
    for one, other in zip(donor[0], learner[0], strict=True):
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, other.state_dict()[name]), name
    marks = [each[2].state_fns["local"][1]()["donor"] for each in (donor, learner)]
    assert [mark.numel() for mark in marks] == [0, 0]


def test_donors_are_told_apart_by_a_shape():
    made = managers(3)
    nets = [Scalar() for _ in made]
    for manager, net in zip(made, nets, strict=True):
        optimizers = [torch.optim.SGD(net.parameters(), lr=1.0) for _ in range(2)]
        DiLoCo(manager, [net], *optimizers, sync_every=1)
    shapes = {tuple(each.state_fns["local"][1]()["donor"].shape) for each in made}
    assert len(shapes) == 3


def test_what_does_not_fit_is_refused():
    (manager,) = managers(1)
    one, other = Scalar(), Scalar()
    inner = torch.optim.SGD([one.w, other.w], lr=1.0)
    outer = torch.optim.SGD([one.w, other.w], lr=1.0)
    lacking = torch.optim.SGD([one.w], lr=1.0)
    tied = nn.ModuleList([one, Scalar()])
    frozen = Scalar().requires_grad_(False)

    def refused(words, fragments=(one, other), outers=outer, **options):
        with pytest.raises(ConfigError, match=words):
            DiLoCo(manager, fragments, inner, outers, **{"sync_every": 6, **options})

    refused("fragment_update_alpha is 1.5", fragment_update_alpha=1.5)
    refused("fragment_sync_delay is 3", fragment_sync_delay=3)
    refused("sync_every is 1 with 2", sync_every=1)
    refused("1 outer optimisers for 2 fragments", outers=[outer])
    refused("without all parameters", outers=lacking)
    refused("fragments 0 and 1 share a parameter, 0.w of the latter", (one, tied))
    refused("without a parameter to train", (one, frozen))
    refused("no fragment", ())
    refused("cannot quantise to int4", should_quantize="int4")
    DiLoCo(manager, [one, other], inner, outer, sync_every=6)
    refused("are registered")
