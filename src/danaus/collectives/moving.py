"""Tensors on their way between members of a group: gathered, broadcast, sent and received.

Owns the bytes of tensors as ``Group.exchange_bytes`` moves them.  All members of a call name the
same subset, in the same order; tensors are alike at all of them.  Those on a device pass through
the memory of the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.collectives.group import Group
from danaus.collectives.tensor_bytes import view_bytes
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError


def gather(
    group: Group, tensor: Tensor, *, subset: Sequence[str], deadline: Deadline
) -> list[Tensor]:
    """Return every member's tensor, in the order of ``subset``; mine is a copy.

    Raises:
        ExchangeAborted, PeerLost, DeadlinePassed: As the group says.
    """
    mine = _on_cpu(tensor)
    found = {name: mine.clone() if name == group.me else torch.empty_like(mine) for name in subset}
    peers = [name for name in subset if name != group.me]
    group.exchange_bytes(
        dict.fromkeys(peers, view_bytes(mine)),
        {name: view_bytes(found[name]) for name in peers},
        deadline=deadline,
    )
    return [found[name].to(tensor.device) for name in subset]


def broadcast(
    group: Group, tensor: Tensor, *, root: str, subset: Sequence[str], deadline: Deadline
) -> None:
    """Overwrite every member's tensor with that of ``root``.

    Raises:
        ConfigError: ``root`` is none of the subset.
        ExchangeAborted, PeerLost, DeadlinePassed: As the group says.
    """
    if root not in subset:
        raise ConfigError(what=f"{root} would broadcast", needed=f"one of {list(subset)}")
    if group.me != root:
        receive(group, tensor, source=root, deadline=deadline)
        return
    view = view_bytes(_on_cpu(tensor))
    others = [name for name in subset if name != root]
    group.exchange_bytes(dict.fromkeys(others, view), {}, deadline=deadline)


def send(group: Group, tensor: Tensor, *, to: str, deadline: Deadline) -> None:
    """Give a tensor to one member, which receives it.

    Raises:
        ConfigError: To oneself.
        ExchangeAborted, PeerLost, DeadlinePassed: As the group says.
    """
    group.exchange_bytes({to: view_bytes(_on_cpu(tensor))}, {}, deadline=deadline)


@torch.no_grad()
def receive(group: Group, tensor: Tensor, *, source: str, deadline: Deadline) -> None:
    """Overwrite a tensor with what one member sends.

    Raises:
        ConfigError: From oneself.
        ExchangeAborted, PeerLost, DeadlinePassed: As the group says.
    """
    plain = tensor.device.type == "cpu" and tensor.is_contiguous()
    place = tensor.detach() if plain else torch.empty(tensor.shape, dtype=tensor.dtype)
    group.exchange_bytes({}, {source: view_bytes(place)}, deadline=deadline)
    if not plain:
        tensor.copy_(place)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()
