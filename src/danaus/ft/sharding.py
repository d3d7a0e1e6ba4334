"""How a tensor is sharded inside a replica, in words that travel to another replica.

Owns ``Sharding``: a sharded tensor's placement without its mesh.  The same rank of every replica
holds the same part; meshes are each replica's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from danaus.core.errors import ConfigError


class Sharding(msgspec.Struct, frozen=True, array_like=True):
    """A placement: ``placements`` as torch writes them, one per axis of the mesh."""

    placements: tuple[str, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    mesh: tuple[int, ...]


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether a tensor is a part of one that a mesh holds."""
    return hasattr(tensor, "to_local")


def sharding_of(tensor: Tensor) -> Sharding:
    """Return how a sharded tensor is placed."""
    sharded: Any = tensor
    return Sharding(
        tuple(repr(each) for each in sharded.placements),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tuple(sharded.device_mesh.shape),
    )


def with_sharding(local: Tensor, sharding: Sharding, like: Mapping[str, Tensor]) -> Tensor:
    """Return the sharded tensor of which ``local`` is this rank's part.

    Args:
        local: This rank's part.
        sharding: How it is placed.
        like: Tensors of this process; one of them has the mesh and the placement.

    Raises:
        ConfigError: None of them has.
    """
    from torch.distributed.tensor import DTensor

    for tensor in like.values():
        if not isinstance(tensor, DTensor):
            continue
        theirs = sharding_of(tensor)
        if (theirs.placements, theirs.mesh) == (sharding.placements, sharding.mesh):
            return DTensor.from_local(
                local,
                tensor.device_mesh,
                tensor.placements,
                run_check=False,
                shape=torch.Size(sharding.shape),
                stride=sharding.stride,
            )
    raise ConfigError(
        f"a tensor was learned that is placed {', '.join(sharding.placements)} over a mesh of "
        f"{list(sharding.mesh)}",
        "a parameter of this process that is placed so",
    )
