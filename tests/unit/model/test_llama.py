"""The network computes what a Llama does, and its first values depend on seed and name alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from danaus.model import Llama, LlamaConfig, initial_value
from danaus.model.initial import draw_seed
from danaus.model.llama import RMSNorm, rotary_angles, rotate

SMALL = LlamaConfig(dim=16, num_layers=2, num_heads=4, num_kv_heads=2, ffn_dim=24)


def build(config: LlamaConfig = SMALL, seed: int = 1) -> Llama:
    network = Llama(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            value = initial_value(name, parameter.shape, seed=seed, num_layers=config.num_layers)
            parameter.copy_(value)
    return network


def tokens(rows: int = 2, positions: int = 8) -> Tensor:
    return torch.randint(0, 256, (rows, positions), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("tied", [True, False])
def test_sizes(tied: bool) -> None:
    config = LlamaConfig(dim=16, num_layers=2, num_heads=4, num_kv_heads=1, ffn_dim=24, tied=tied)
    network = build(config)
    assert sum(p.numel() for p in network.parameters()) == config.num_parameters
    assert network(tokens()).shape == (2, 8, 256)
    assert (network.output.weight is network.embedding.weight) == tied


def test_no_position_sees_a_later_one() -> None:
    network, x = build(), tokens()
    changed = x.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 256
    before, after = network(x), network(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_rows_do_not_see_each_other() -> None:
    network, x = build(), tokens()
    torch.testing.assert_close(network(x)[1:], network(x[1:]))


def test_rms_norm() -> None:
    x = torch.tensor([[3.0, 4.0]])
    expected = x / math.sqrt(12.5 + 1e-5)
    torch.testing.assert_close(RMSNorm(2, 1e-5)(x), expected)


def test_rotation_keeps_lengths_and_depends_on_distance() -> None:
    cos, sin = rotary_angles(10, 8, 10000.0)
    q, k = torch.randn(8), torch.randn(8)
    turned_q = rotate(q.expand(1, 1, 10, 8), cos, sin)[0, 0]
    turned_k = rotate(k.expand(1, 1, 10, 8), cos, sin)[0, 0]
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm().expand(10))
    torch.testing.assert_close(turned_q[7] @ turned_k[4], turned_q[3] @ turned_k[0])
    torch.testing.assert_close(turned_q[0], q)


def test_grouped_heads_are_repeated_heads() -> None:
    """With each key/value head copied to its group, plain multi-head attention is the same."""
    grouped = build()
    plain = build(LlamaConfig(dim=16, num_layers=2, num_heads=4, num_kv_heads=4, ffn_dim=24))
    values = {name: p.detach().clone() for name, p in grouped.named_parameters()}
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            value = values[name]
            if name.endswith(("wk.weight", "wv.weight")):
                value = value.view(2, 4, 16).repeat_interleave(2, dim=0).reshape(16, 16)
            parameter.copy_(value)
    torch.testing.assert_close(grouped(tokens()), plain(tokens()))


def test_the_forward_leaves_no_buffer() -> None:
    network = build()
    network(tokens())
    assert dict(network.named_buffers()) == {}


def test_longer_inputs_extend_the_angles() -> None:
    network = build()
    short = network(tokens(positions=4))
    network(tokens(positions=32))
    assert torch.equal(network(tokens(positions=4)), short)


def test_first_values_depend_on_seed_and_name_alone() -> None:
    def value(name: str = "blocks.0.attention.wq.weight", seed: int = 1) -> Tensor:
        return initial_value(name, torch.Size([6, 4]), seed=seed, num_layers=2)

    first = value()
    torch.manual_seed(99)
    assert torch.equal(first, value())
    assert not torch.equal(first, value(seed=2))
    assert not torch.equal(first, value("blocks.1.attention.wq.weight"))


def test_first_values_have_the_spread_they_should() -> None:
    def spread(name: str) -> float:
        size = torch.Size([400, 100])
        return float(initial_value(name, size, seed=1, num_layers=8).std())

    assert spread("embedding.weight") == pytest.approx(0.02, rel=0.05)
    assert spread("blocks.0.ffn.w1.weight") == pytest.approx(0.1, rel=0.05)
    assert spread("blocks.0.ffn.w2.weight") == pytest.approx(0.025, rel=0.05)
    assert torch.equal(
        initial_value("norm.weight", torch.Size([3]), seed=1, num_layers=1), torch.ones(3)
    )
    assert torch.equal(
        initial_value("output.bias", torch.Size([3]), seed=1, num_layers=1), torch.zeros(3)
    )


def test_a_draw_is_the_same_on_every_machine() -> None:
    assert draw_seed("initial", 1, "norm.weight") == draw_seed("initial", 1, "norm.weight")
    assert draw_seed("a", 12) != draw_seed("a1", 2)
    assert 0 <= draw_seed("x") < 2**63
