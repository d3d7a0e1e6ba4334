"""Numbers in one byte each, with a scale for every block of them.

Owns what is sent where exactness is given up for a quarter of the bytes.  Pure functions of their
tensors: who unpacks the same bytes in the same order has the same bits.

Invariants:
    A number comes back within ``error_bound`` of what it was.
    A block with a number that is not finite comes back as NaN: nothing wrong is made to look right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from danaus.core.errors import ConfigError

BLOCK = 256
"""Numbers that share a scale."""
Kind = Literal["int8", "fp8"]
KINDS: tuple[Kind, ...] = ("int8", "fp8")
_SCALE_BYTES = 4
_LARGEST = {"int8": 127.0, "fp8": 448.0}
_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
# Below, a scale would have fewer digits than a float has; such blocks count as zeros.
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny


def packed_bytes(num_elements: int) -> int:
    """Return the bytes that so many numbers take."""
    return num_elements + _SCALE_BYTES * _num_blocks(num_elements)


@torch.no_grad()
def pack(flat: Tensor, kind: Kind = "int8") -> Tensor:
    """Return ``flat`` in one byte for each number and four for each block.

    Args:
        flat: ``[num_elements]`` of real floating point, on any device.
        kind: ``int8``: evenly spaced within a block; ``fp8``: three bits after the point (e4m3).

    Returns:
        ``[packed_bytes(num_elements)]`` uint8: all scales, then all numbers.

    Raises:
        ConfigError: Of another kind, or not real floating point.
    """
    check_kind(kind)
    if not flat.dtype.is_floating_point or flat.dim() != 1:
        raise ConfigError(f"cannot quantise {flat.dtype} of {list(flat.shape)}", "a flat real one")
    blocks = _in_blocks(flat.float())
    scales = _scales(blocks, kind)
    codes = blocks / torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = torch.where(scales > 0, codes, torch.zeros_like(codes))
    codes = codes.clamp(-_LARGEST[kind], _LARGEST[kind])
    if kind == "int8":
        codes = codes.round()
    octets = codes.to(_DTYPES[kind]).view(torch.uint8).reshape(-1)[: flat.numel()]
    return torch.cat([scales.reshape(-1).view(torch.uint8), octets])


@torch.no_grad()
def unpack(packed: Tensor, num_elements: int, kind: Kind = "int8") -> Tensor:
    """Return what ``pack`` made these bytes of, nearly: ``[num_elements]`` float32.

    Raises:
        ConfigError: Of another kind, or not so many bytes.
    """
    check_kind(kind)
    if packed.numel() != packed_bytes(num_elements):
        raise ConfigError(
            f"{packed.numel()} bytes of {num_elements} quantised numbers",
            f"{packed_bytes(num_elements)}",
        )
    at = _SCALE_BYTES * _num_blocks(num_elements)
    # A copy begins where a float may begin, wherever these bytes do.
    scales = packed[:at].clone().view(torch.float32)
    codes = packed[at:].clone().view(_DTYPES[kind]).float()
    return codes * scales.repeat_interleave(BLOCK)[:num_elements]


@torch.no_grad()
def sum_of(packed: Sequence[Tensor], num_elements: int, kind: Kind = "int8") -> Tensor:
    """Return the sum of what each unpacks to, added in float32 from the first to the last."""
    total = unpack(packed[0], num_elements, kind)
    for each in packed[1:]:
        total += unpack(each, num_elements, kind)
    return total


@torch.no_grad()
def error_bound(flat: Tensor, kind: Kind = "int8") -> Tensor:
    """Return how far each number may be from itself once it was packed and unpacked.

    Args:
        flat: As for ``pack``, finite.
        kind: As for ``pack``.

    Returns:
        ``[num_elements]`` float32.
    """
    check_kind(kind)
    blocks = _in_blocks(flat.float())
    largest = blocks.abs().amax(dim=1, keepdim=True)
    scales = _scales(blocks, kind)
    if kind == "int8":
        bound = (0.5 * scales).expand_as(blocks)
    else:
        bound = torch.maximum(blocks.abs() * 2.0**-4, scales * 2.0**-10)
    bound = torch.where(scales > 0, bound, largest)
    # Dividing, multiplying and the scale itself are rounded to float32.
    return (bound + largest * 2.0**-22).reshape(-1)[: flat.numel()]


def kind_of(should_quantize: bool | Kind) -> Kind | None:
    """Return what numbers are quantised to: True is ``int8``; None where they are not.

    Raises:
        ConfigError: Another kind of numbers.
    """
    if not should_quantize:
        return None
    kind: Kind = "int8" if should_quantize is True else should_quantize
    check_kind(kind)
    return kind


def check_kind(kind: str) -> None:
    """Raise ``ConfigError`` for a kind of number that is none of ours."""
    if kind not in KINDS:
        raise ConfigError(f"cannot quantise to {kind}", f"one of {', '.join(KINDS)}")


def _num_blocks(num_elements: int) -> int:
    return -(-num_elements // BLOCK)


def _in_blocks(flat: Tensor) -> Tensor:
    num_blocks = _num_blocks(flat.numel())
    padding = num_blocks * BLOCK - flat.numel()
    return torch.nn.functional.pad(flat, (0, padding)).view(num_blocks, BLOCK)


def _scales(blocks: Tensor, kind: Kind) -> Tensor:
    """Return ``[num_blocks, 1]`` scales; 0 for zeros, NaN where a number is not finite."""
    largest = blocks.abs().amax(dim=1, keepdim=True)  # a NaN among them is the largest
    scales = largest / _LARGEST[kind]
    scales = torch.where(scales < _SMALLEST_SCALE, torch.zeros_like(scales), scales)
    return torch.where(largest.isfinite(), scales, torch.full_like(scales, torch.nan))
