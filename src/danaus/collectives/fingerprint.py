"""Numbers that tell whether two processes hold the same bits.

``fingerprint`` is of a state (Q-9): an integer sum per tensor, computed where the tensor lives.
``digest`` is of one reduced gradient (T-1).  Both are compared within one platform only.

Invariants:
    One flipped bit anywhere changes the fingerprint: a single word enters each sum once, and
    integer sums wrap without loss.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import torch
import xxhash
from torch import Tensor

from danaus.collectives.tensor_bytes import local_shard, view_bytes


def _word_sum(tensor: Tensor) -> Tensor:
    """Return the wrapping sum of a tensor's 8-byte words and of its last bytes, as int64.

    The same for the same bits, wherever the tensor begins in memory.
    """
    flat = tensor.contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.data_ptr() % 8:
        flat = flat.clone()
    octets = flat.view(torch.uint8)
    whole = octets.numel() // 8 * 8
    words = octets[:whole].view(torch.int64)
    # Summing 8-byte words runs at the speed of memory; narrower ones are widened one by one.
    return words.sum() + octets[whole:].sum(dtype=torch.int64)


@torch.no_grad()
def fingerprint(named: Mapping[str, Tensor]) -> str:
    """Return 16 hex characters that stand for the bits of all tensors, their names and shapes.

    Args:
        named: Any shapes, dtypes and devices; of sharded tensors the local shard counts.
    """
    names = sorted(named)
    tensors = [local_shard(named[name]) for name in names]
    sums = [_word_sum(tensor) for tensor in tensors]
    # One transfer from each device, not one per tensor.
    by_device: dict[torch.device, list[int]] = {}
    for at, each in enumerate(sums):
        by_device.setdefault(each.device, []).append(at)
    values = [0] * len(sums)
    for places in by_device.values():
        for at, value in zip(places, torch.stack([sums[p] for p in places]).tolist(), strict=True):
            values[at] = value
    hashed = xxhash.xxh3_64()
    for name, tensor, value in zip(names, tensors, values, strict=True):
        hashed.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        hashed.update(struct.pack("<q", value))
    return hashed.hexdigest()


@torch.no_grad()
def digest(flat: Tensor) -> str:
    """Return 16 hex characters that stand for the bits of a reduced gradient.

    Args:
        flat: ``[num_elements]``; on the CPU all bytes are hashed, elsewhere it is ``fingerprint``.
    """
    if flat.device.type != "cpu":
        return fingerprint({"": flat})
    return xxhash.xxh3_64_hexdigest(view_bytes(flat.detach().contiguous()))
