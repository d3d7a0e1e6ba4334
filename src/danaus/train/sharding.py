"""FSDP2 over one replica's processes.

Loaded only where a replica has several processes: importing it costs most of a second.

Invariants:
    T-4: a leaf is reduce-scattered once, summed (divide factor 1), never averaged.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor


def shard_over(network: nn.Module, mesh: DeviceMesh) -> None:
    """Shard ``network`` over ``mesh`` in place.

    Every submodule listed in ``network.blocks`` (where there is one) is gathered by itself, the
    rest with the network.
    """
    blocks = getattr(network, "blocks", None)
    for block in blocks if isinstance(blocks, nn.ModuleList) else ():
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # Gloo knows no scaled sum, and a factor of 1 needs none.
            module.set_force_sum_reduction_for_comms(True)


def sync_gradients(network: nn.Module, last: bool) -> None:
    """Say whether the coming backward is a leaf's last: only that one reduce-scatters."""
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(last)
        network.set_reshard_after_backward(last)


def local_part(tensor: Tensor) -> Tensor:
    """Return this process's part of a parameter or gradient: plain, same memory."""
    if isinstance(tensor, DTensor):
        part: Tensor = tensor.to_local()
        return part.detach()
    return tensor.detach()


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether a parameter is spread over the replica's ranks."""
    return isinstance(tensor, DTensor)
