"""The classic loop, ``zero_grad``, backward, ``step``: wrapped module, wrapped optimiser."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.procs.ft.managed_replicas import Service, bits
from torch import nn

from danaus.core.errors import ConfigError
from danaus.ft import DistributedDataParallel, Manager, Optimizer
from danaus.testing.groups import together

pytestmark = pytest.mark.timeout(150)
STEPS = 4


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Net(nn.Module):
    """Two branches: which one autograd goes through first, and which at all, is the input's say."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.first, self.second, self.last = nn.Linear(3, 40), nn.Linear(3, 40), nn.Linear(40, 1)
        for parameter in self.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=draw))

    def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
        taken = [self.first, self.second][branch](x)
        return self.last(torch.tanh(taken)).square().sum()


def inputs(replica: int, step: int) -> torch.Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(100 * replica + step))


class Trains:
    """A replica of the loop that people have."""

    def __init__(self, folder: Any, number: int, **options: Any) -> None:
        self.number = number
        self.net = Net(seed=number)
        plain = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.manager = Manager(
            load_state_dict=self.load,
            state_dict=lambda: {"net": self.net.state_dict(), "optimizer": plain.state_dict()},
            min_replica_size=2,
            replica_id=f"replica-{number}",
            folder=folder,
            **options,
        )
        # A bucket of a few hundred bytes: several in each backward, and tensors that are cut.
        self.module = DistributedDataParallel(
            self.manager, self.net, bucket_cap_mb=0.0003, device_ids=None
        )
        self.optimizer = Optimizer(self.manager, plain)
        self.plain = plain

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])

    def loop(self, num_accumulated: int = 1) -> None:
        while self.manager.current_step() < STEPS:
            step = self.manager.current_step()
            self.optimizer.zero_grad()
            for at in range(num_accumulated - 1):
                with self.module.no_sync():
                    self.module(inputs(self.number, step + 50 * (at + 1)), branch=0).backward()
            self.module(inputs(self.number, step), branch=self.number).backward()
            self.optimizer.step()


@pytest.fixture
def pair(tmp_path):
    service = Service(tmp_path, "--expected-replicas=2")
    made = [Trains(tmp_path, number) for number in range(2)]
    yield made
    for each in made:
        each.manager.shutdown()
    service.end()


def plain_loop(num_accumulated: int = 1) -> Net:
    """What two replicas come to, computed by one: of replica-0's first weights."""
    net = Net(seed=0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(STEPS):
        found = []
        for number in range(2):
            optimizer.zero_grad()
            for at in range(num_accumulated - 1):
                net(inputs(number, step + 50 * (at + 1)), branch=0).backward()
            net(inputs(number, step), branch=number).backward()
            found.append(
                [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]
            )
        for parameter, one, two in zip(net.parameters(), *found, strict=True):
            parameter.grad = (one + two) / 2
        optimizer.step()
    return net


@pytest.mark.parametrize("num_accumulated", [1, 3])
def test_two_replicas_train_to_the_bits_of_one_that_sees_both_batches(pair, num_accumulated):
    """Each replica's loss reaches other parameters, in another order."""
    together(*[lambda r=r: r.loop(num_accumulated) for r in pair])
    expect = bits(*plain_loop(num_accumulated).parameters())
    assert [bits(*each.net.parameters()) for each in pair] == [expect, expect]
    assert {each.manager.batches_committed() for each in pair} == {2 * STEPS}


def test_the_wrappers_show_what_they_wrap(pair):
    one = pair[0]
    assert one.module.module is one.net
    assert next(iter(one.module.state_dict())) == "module.first.weight"
    assert one.optimizer.param_groups is one.plain.param_groups
    assert one.optimizer.state is one.plain.state
    assert one.optimizer.defaults is one.plain.defaults
    assert "AdamW" in repr(one.optimizer)
    one.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert len(one.plain.param_groups) == 2
    with pytest.raises(ConfigError, match="closure"):
        one.optimizer.step(lambda: 1.0)
    with pytest.raises(ConfigError, match="no option bucket_cap"):
        DistributedDataParallel(one.manager, one.net, bucket_cap=3)
    with pytest.raises(ConfigError, match="without a parameter"):
        DistributedDataParallel(one.manager, nn.ReLU())


def test_a_discarded_step_leaves_parameters_and_optimiser_as_they_were(pair):
    def first(replica):
        replica.optimizer.zero_grad()
        replica.module(inputs(replica.number, 0), branch=0).backward()
        replica.optimizer.step()

    together(*[lambda r=r: first(r) for r in pair])
    states = [bits(*r.net.parameters(), *r.plain.state_dict()["state"][0].values()) for r in pair]
    assert states[0] == states[1]

    def refused(replica):
        replica.optimizer.zero_grad()
        replica.module(inputs(replica.number, 1), branch=0).backward()
        if replica.number:
            replica.manager.report_error(RuntimeError("a loss that is none"))
        replica.optimizer.step()

    together(*[lambda r=r: refused(r) for r in pair])
    after = [bits(*r.net.parameters(), *r.plain.state_dict()["state"][0].values()) for r in pair]
    assert after == states
    assert [r.manager.current_step() for r in pair] == [1, 1]
    together(*[lambda r=r: r.loop() for r in pair])
    assert bits(*pair[0].net.parameters()) == bits(*pair[1].net.parameters())
