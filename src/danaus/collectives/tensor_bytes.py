"""The bytes of a tensor as a memory view, without a copy and without numpy.

Invariants:
    A view keeps its tensor alive.
"""

from __future__ import annotations

import ctypes

from torch import Tensor

from danaus.core.errors import ConfigError


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's part of a sharded tensor, any other tensor as it is; same memory."""
    to_local = getattr(tensor, "to_local", None)
    shard: Tensor = tensor if to_local is None else to_local()
    return shard.detach()


def view_bytes(tensor: Tensor) -> memoryview:
    """Return the writable bytes of a contiguous CPU tensor of any dtype.

    Raises:
        ConfigError: The tensor is elsewhere or not contiguous.
    """
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ConfigError(
            what=f"no plain bytes in {list(tensor.shape)} on {tensor.device}",
            needed="a contiguous tensor on the CPU",
        )
    num_bytes = tensor.numel() * tensor.element_size()
    if num_bytes == 0:
        return memoryview(bytearray())
    array = (ctypes.c_ubyte * num_bytes).from_address(tensor.data_ptr())
    array.tensor = tensor  # type: ignore[attr-defined]  # the memory's owner
    return memoryview(array).cast("B")
