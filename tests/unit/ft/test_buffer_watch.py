"""A forward that changes a buffer is refused, however often it is looked for (T-2)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from danaus.core.errors import ConfigError
from danaus.ft.buffers import BufferWatch


def network() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    net[2].register_buffer("scale", torch.ones(1))
    return net


def changed(net: nn.Module) -> None:
    net[2].scale += 1.0


def replaced(net: nn.Module) -> None:
    net[2].scale = torch.ones(1)


def appeared(net: nn.Module) -> None:
    net[0].register_buffer("more", torch.ones(1))


def appeared_in_a_new_module(net: nn.Module) -> None:
    net[2].add_module("norm", nn.BatchNorm1d(2))


@pytest.mark.parametrize("change", [changed, replaced, appeared, appeared_in_a_new_module])
def test_what_a_forward_does_to_a_buffer_is_noticed_each_time(change) -> None:
    net = network()
    watch = BufferWatch(net)
    watch.check()
    watch.check()
    change(net)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"buffer (2\.scale|0\.more|2\.norm)"):
            watch.check()
    watch.begin()
    watch.check()
    changed(net)
    with pytest.raises(ConfigError, match=r"2\.scale was changed"):
        watch.check()


def test_what_is_declared_may_change_and_hides_nothing_else() -> None:
    net = network()
    watch = BufferWatch(net, frozenset({"2.scale"}))
    changed(net)
    watch.check()
    replaced(net)
    watch.check()
    net.train()(torch.ones(3, 2))
    with pytest.raises(ConfigError, match=r"buffer 1\.\w+ was changed"):
        watch.check()
    with pytest.raises(ConfigError, match="is not in the network"):
        BufferWatch(net, frozenset({"2.scales"}))
