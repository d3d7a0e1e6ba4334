"""Numbers in a byte each: how far off they are, and that all who unpack them have the same bits."""

import pytest
import torch
from torch import Tensor

from danaus.collectives.quantising import (
    BLOCK,
    KINDS,
    error_bound,
    pack,
    packed_bytes,
    sum_of,
    unpack,
)
from danaus.core.errors import ConfigError

SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 77]


def numbers(size: int, seed: int = 0) -> Tensor:
    """Blocks of very different sizes, zeros and huge ones among them."""
    draw = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-60, 60, (size // BLOCK + 1,), generator=draw).float()
    flat = torch.randn(size, generator=draw) * torch.exp2(exponents).repeat_interleave(BLOCK)[:size]
    flat[::7] = 0.0
    return flat


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_each_number_comes_back_within_its_bound(kind, size):
    flat = numbers(size)
    packed = pack(flat, kind)
    assert (packed.dtype, packed.numel()) == (torch.uint8, packed_bytes(size))
    back = unpack(packed, size, kind)
    error = (back.double() - flat.double()).abs()
    bound = error_bound(flat, kind).double()
    assert bool((error <= bound).all())
    assert bool((back[::7] == 0).all())
    # The bound means something: no number may be off by more than a part of its block's largest.
    for at in range(0, size, BLOCK):
        largest = flat[at : at + BLOCK].abs().max()
        assert bound[at : at + BLOCK].max() <= largest / (250.0 if kind == "int8" else 15.9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_of_a_block_is_nearly_exact(kind):
    flat = torch.tensor([3.7, -0.1, 0.2])
    torch.testing.assert_close(unpack(pack(flat, kind), 3, kind)[0], flat[0])


def test_whole_numbers_up_to_127_are_exact_beside_127():
    flat = torch.arange(-127.0, 128.0)
    assert torch.equal(unpack(pack(flat), 255), flat)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoiled", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spoils_its_block_and_no_other(kind, spoiled):
    flat = torch.ones(2 * BLOCK)
    flat[3] = spoiled
    back = unpack(pack(flat, kind), 2 * BLOCK, kind)
    assert bool(back[:BLOCK].isnan().all())
    assert bool(back[BLOCK:].isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-37, 1e-44])
def test_next_to_nothing_is_within_its_bound(kind, size):
    flat = torch.tensor([size, -size, size / 3])
    back = unpack(pack(flat, kind), 3, kind)
    assert bool(((back - flat).abs() <= error_bound(flat, kind)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_within_the_sum_of_bounds_and_depend_on_the_order_only(kind):
    flats = [numbers(1000, seed) for seed in range(3)]
    packed = [pack(flat, kind) for flat in flats]
    total = sum_of(packed, 1000, kind)
    assert torch.equal(total, sum_of([each.clone() for each in packed], 1000, kind))
    bound = sum(error_bound(flat, kind).double() for flat in flats)
    exact = sum(flat.double() for flat in flats)
    rounding = sum(flat.double().abs() for flat in flats) * 2.0**-22
    assert bool(((total.double() - exact).abs() <= bound + rounding).all())


def test_other_floats_are_taken_as_float32():
    flat = torch.randn(300, dtype=torch.float64)
    assert torch.equal(pack(flat), pack(flat.float()))
    half = flat.bfloat16()
    assert torch.equal(pack(half), pack(half.float()))


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ConfigError, match=r"cannot quantise torch\.int64"):
        pack(torch.arange(3))
    with pytest.raises(ConfigError, match=r"of \[1, 2\]"):
        pack(torch.ones(1, 2))
    with pytest.raises(ConfigError, match="cannot quantise to int4"):
        pack(torch.ones(2), "int4")
    with pytest.raises(ConfigError, match="5 bytes of 2 quantised numbers: 6"):
        unpack(torch.zeros(5, dtype=torch.uint8), 2)
