"""One replica over one or several processes.

Owns ``ShardPlace``: where this process stands in its replica, and everything the trainer asks
because of it.  ``train.sharding`` does the sharding; who the members of the group are, and how
they are exchanged, is the group's own business (H-3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from danaus.core.errors import ConfigError
from danaus.train.resharding import Piece

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class ShardPlace:
    """Where this process stands in its replica.

    Args:
        rank: Its rank, from 0.
        size: Processes of the replica.
        mesh: The replica's one-dimensional device mesh; None exactly if ``size`` is 1.
    """

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ConfigError(f"rank {self.rank} of {self.size}", "0 <= rank < size")
        if (self.mesh is None) != (self.size == 1):
            raise ConfigError(
                f"a replica of {self.size} processes {'with' if self.mesh else 'without'} a mesh",
                "a mesh exactly if there are several",
            )
        if self.mesh is not None and (self.mesh.ndim, self.mesh.size()) != (1, self.size):
            raise ConfigError(
                f"a mesh of shape {tuple(self.mesh.shape)}", f"one axis of {self.size} processes"
            )

    # -- numbers ----------------------------------------------------------------------------

    def rows(self, num_rows: int) -> slice:
        """Return the rows of a microbatch that this rank computes."""
        each = num_rows // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def add_up(self, values: Tensor) -> None:
        """Replace ``values`` by their sum over the replica's ranks, in place."""
        if self.mesh is not None:
            dist.all_reduce(values, group=self.mesh.get_group())

    def agree(self, flag: bool) -> bool:
        """Return whether any rank of the replica has ``flag`` set; the same to all of them."""
        if self.mesh is None:
            return flag
        count = torch.tensor([float(flag)])
        self.add_up(count)
        return bool(count > 0)

    def gather(self, value: float) -> list[float]:
        """Return every rank's ``value``, in rank order, as fp64."""
        if self.mesh is None:
            return [value]
        mine = torch.tensor([value], dtype=torch.float64)
        theirs = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(theirs, mine, group=self.mesh.get_group())
        return [float(each) for each in theirs]

    def take_waited_s(self) -> float:
        """Return how long collectives kept this rank since it was last asked, in seconds."""
        if self.mesh is None:
            return 0.0
        take: Callable[[], float] = getattr(self.mesh.get_group(), "take_waited_s", lambda: 0.0)
        return take()

    # -- the network ------------------------------------------------------------------------

    def shard(self, network: nn.Module) -> None:
        """Shard ``network`` over the replica in place; alone it is left as it is."""
        if self.mesh is not None:
            _sharding().shard_over(network, self.mesh)

    def sync_gradients(self, network: nn.Module, last: bool) -> None:
        """Say whether the coming backward is a leaf's last: only that one is reduced (T-4)."""
        if self.mesh is not None:
            _sharding().sync_gradients(network, last)

    def local(self, tensor: Tensor) -> Tensor:
        """Return this rank's part of a parameter or gradient: plain, detached, same memory."""
        if self.mesh is None:
            return tensor.detach()
        part: Tensor = _sharding().local_part(tensor)
        return part

    def cut(self, full: Tensor, parameter: Tensor) -> Tensor:
        """Return this rank's part of ``full``, a whole value of ``parameter``.

        Source: FSDP2 cuts along dim 0 as ``torch.chunk`` does.
        """
        if self.mesh is None or not _sharding().is_sharded(parameter):
            return full
        parts = full.chunk(self.size, dim=0)
        return parts[self.rank] if self.rank < len(parts) else full[:0]

    def piece(self, parameter: Tensor) -> Piece | None:
        """Return which rows of ``parameter`` this rank holds; None: it is not cut."""
        if self.mesh is None or not _sharding().is_sharded(parameter):
            return None
        num_rows = parameter.shape[0]
        each = -(-num_rows // self.size)
        return Piece(tuple(parameter.shape), min(self.rank * each, num_rows))


ALONE = ShardPlace()


def _sharding() -> Any:
    return import_module("danaus.train.sharding")
