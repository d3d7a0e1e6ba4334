"""A plain model and optimiser as a work: the bits of a plain loop, handed on whole, put back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from danaus.core.errors import CheckpointDamaged, ConfigError
from danaus.ft.plain_work import PlainWork, seed_draws
from danaus.ft.work import numbers_of

MICROBATCHES = 2

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adamw": torch.optim.AdamW,
    "adagrad": lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1),
    "adadelta": torch.optim.Adadelta,
    "nadam": torch.optim.NAdam,
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
}


@pytest.fixture(params=OPTIMIZERS, ids=str)
def make_optimizer(request):
    return OPTIMIZERS[request.param]


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2))


def loss_of(model: nn.Module, step: int, microbatch: int) -> torch.Tensor:
    inputs = torch.linspace(-1.0, step + microbatch, 6).view(2, 3)
    return model(inputs).square().sum()


def gradient_of(work: PlainWork, model: nn.Module, step: int) -> torch.Tensor:
    work.begin_leaf()
    for microbatch in range(MICROBATCHES):
        work.seed_draws(step, microbatch)
        work.backward(loss_of(model, step, microbatch), 2)
    gradient = work.leaf(MICROBATCHES).clone()
    assert work.check(step, gradient) is None
    return gradient


def take(work: PlainWork, model: nn.Module, step: int) -> None:
    work.apply(step, gradient_of(work, model, step))


def made(make) -> tuple[nn.Module, PlainWork]:
    model = network()
    return model, PlainWork(model, make(model.parameters()))


def hand_over(giver: PlainWork, taker: PlainWork, step: int) -> None:
    """Copy the state as a transfer does: tensor by tensor, in place."""
    given, taken = giver.state(), taker.state()
    assert {n: (t.shape, t.dtype) for n, t in given.items()} == {
        n: (t.shape, t.dtype) for n, t in taken.items()
    }
    for name, tensor in taken.items():
        tensor.copy_(given[name])
    taker.loaded(step)


def test_a_plain_loop_has_the_same_bits(make_optimizer):
    model, work = made(make_optimizer)
    other = network()
    optimizer = make_optimizer(other.parameters())
    for step in range(1, 5):
        take(work, model, step)
        for microbatch in range(MICROBATCHES):
            seed_draws(3, step, microbatch)
            loss_of(other, step, microbatch).backward()
        for parameter in other.parameters():
            parameter.grad /= 2 * MICROBATCHES
        optimizer.step()
        optimizer.zero_grad()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_learner_goes_on_as_its_donor_does(make_optimizer):
    model, work = made(make_optimizer)
    for step in (1, 2, 3):
        take(work, model, step)
    late_model, late = made(make_optimizer)
    assert late.fingerprint() != work.fingerprint()
    hand_over(work, late, step=3)
    assert late.fingerprint() == work.fingerprint()
    take(work, model, 4)
    take(late, late_model, 4)
    assert late.fingerprint() == work.fingerprint()


def rate(work: PlainWork, step: int) -> None:
    """Set the rates of a step, as a loop's body does."""
    for group in work._optimizer.param_groups:
        group["lr"] = 0.1 / step


def test_steps_that_were_taken_elsewhere_are_taken_again_to_the_same_bits(make_optimizer):
    model, work = made(make_optimizer)
    late_model, late = made(make_optimizer)
    assert work.replays
    take(work, model, 1)
    hand_over(work, late, step=1)
    for step in (2, 3, 4):
        rate(work, step)
        gradient = gradient_of(work, model, step)
        copy, numbers = gradient.clone(), numbers_of(work)
        work.apply(step, gradient)
        late.tune(numbers)
        late.apply(step, copy)
        assert late.fingerprint() == work.fingerprint()
    # It goes on with the members' numbers until its own loop says otherwise.
    take(work, model, 5)
    take(late, late_model, 5)
    assert late.fingerprint() == work.fingerprint()


def test_a_learner_takes_over_the_rates_that_its_donor_goes_by(make_optimizer):
    model, work = made(make_optimizer)
    late_model, late = made(make_optimizer)
    rate(work, 7)
    take(work, model, 1)
    hand_over(work, late, step=1)
    assert late.numbers == work.numbers
    take(work, model, 2)
    take(late, late_model, 2)
    assert late.fingerprint() == work.fingerprint()
    work.restore(0, 2)
    assert work.numbers == made(make_optimizer)[1].numbers


def test_the_beginning_can_be_gone_back_to(make_optimizer):
    model, work = made(make_optimizer)
    fingerprints = [work.fingerprint()]
    for step in (1, 2):
        take(work, model, step)
        fingerprints.append(work.fingerprint())
    work.restore(0, 2)
    assert work.fingerprint() == fingerprints[0]
    for step in (1, 2):
        take(work, model, step)
        assert work.fingerprint() == fingerprints[step]


def test_the_beginning_can_be_learned(make_optimizer):
    """By one who has gone on, from peers that were put back."""
    model, work = made(make_optimizer)
    take(work, model, 1)
    _, fresh = made(make_optimizer)
    hand_over(fresh, work, step=0)
    assert work.fingerprint() == fresh.fingerprint()
    take(work, model, 1)
    hand_over(work, fresh, step=1)
    assert work.fingerprint() == fresh.fingerprint()


def test_making_a_work_changes_nothing(make_optimizer):
    model = network()
    optimizer = make_optimizer(model.parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held = {len(state) for state in optimizer.state.values()}
    PlainWork(model, optimizer)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert {len(state) for state in optimizer.state.values()} == held
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_seed_travels_with_the_state():
    model, work = made(OPTIMIZERS["sgd"])
    torch.manual_seed(4)
    other_model = network()
    torch.manual_seed(4)
    other = PlainWork(other_model, torch.optim.SGD(other_model.parameters(), lr=0.1))
    hand_over(work, other, step=0)
    take(work, model, 1)
    take(other, other_model, 1)
    assert other.fingerprint() == work.fingerprint()


def test_a_forward_that_changes_a_buffer_is_refused():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    work = PlainWork(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ConfigError, match=r"buffer 1\.\w+ was changed"):
        take(work, model, 1)
    model.eval()
    take(work, model, 1)


def test_a_loop_that_takes_gradients_away_is_refused():
    model, work = made(OPTIMIZERS["sgd"])
    work.begin_leaf()
    work.backward(loss_of(model, 1, 0), 2)
    model.zero_grad()
    with pytest.raises(ConfigError, match="taken away or replaced"):
        work.leaf(1)


def test_backward_is_called_once_for_each_microbatch():
    model, work = made(OPTIMIZERS["sgd"])
    work.begin_leaf()
    work.backward(loss_of(model, 1, 0), 2)
    with pytest.raises(ConfigError, match="called 1 times for 2 microbatches"):
        work.leaf(2)


def test_a_gradient_that_is_not_finite_is_refused():
    _, work = made(OPTIMIZERS["sgd"])
    flat = torch.zeros(work.num_gradient_elements)
    assert work.check(1, flat) == "the step has no tokens"
    flat[0] = float("nan")
    assert work.check(1, flat) == "the gradient is not finite"


class Counts(torch.optim.SGD):
    """Keeps a number, as optimisers do that were not written for this."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
        return super().step(closure)


def test_models_and_optimisers_that_cannot_be_handed_on_are_refused():
    model = network()
    parameters = list(model.parameters())
    with pytest.raises(ConfigError, match="keeps 'count' in something else than a tensor"):
        PlainWork(model, Counts(parameters, lr=0.1))
    with pytest.raises(ConfigError, match="closure"):
        PlainWork(model, torch.optim.LBFGS(parameters))
    with pytest.raises(ConfigError, match=r"shape \(7,\) that is no trained parameter"):
        PlainWork(model, torch.optim.SGD([*parameters, nn.Parameter(torch.zeros(7))], lr=0.1))
    with pytest.raises(ConfigError, match="float64"):
        PlainWork(model.double(), torch.optim.SGD(parameters, lr=0.1))


def test_there_are_no_checkpoints():
    _, work = made(OPTIMIZERS["sgd"])
    assert work.restorable_step() == 0
    with pytest.raises(CheckpointDamaged):
        work.restore(5, 2)
