"""Which samples a replica's rank sees, where each replica has a batch of its own.

Owns ``DistributedSampler``.  What the constant-batch loop does (``ft.loop``) needs no sampler.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.utils import data

from danaus.core.errors import ConfigError


class DistributedSampler(data.distributed.DistributedSampler[Any]):
    """Share a data set among the ranks of all replicas, those included that are not there now.

    The shares do not depend on who is alive: what belongs to a replica that is gone is not seen
    meanwhile, and a batch of a discarded step is the loop's to bring again.

    Args:
        dataset: What is shared.
        replica_rank: This replica's number, from 0; one that stays with it.
        num_replica_groups: The most replicas that there will be.
        group_rank: Of this process inside its replica; that of the default group unless given.
        num_replicas: Processes of a replica; the size of that group unless given.
        options: ``shuffle``, ``seed`` and ``drop_last``, as torch's class of this name has them.

    Raises:
        ConfigError: A number that is out of range.
    """

    def __init__(
        self,
        dataset: data.Dataset[Any],
        replica_rank: int,
        num_replica_groups: int,
        *,
        group_rank: int | None = None,
        num_replicas: int | None = None,
        **options: Any,
    ) -> None:
        inside = dist.is_initialized()
        if group_rank is None:
            group_rank = dist.get_rank() if inside else 0
        if num_replicas is None:
            num_replicas = dist.get_world_size() if inside else 1
        for what, at, size in (
            ("replica_rank", replica_rank, num_replica_groups),
            ("group_rank", group_rank, num_replicas),
        ):
            if not 0 <= at < size:
                raise ConfigError(f"{what} is {at} of {size}", f"0 to {size - 1}")
        self.global_rank = group_rank + num_replicas * replica_rank
        self.global_world_size = num_replicas * num_replica_groups
        super().__init__(
            dataset, rank=self.global_rank, num_replicas=self.global_world_size, **options
        )
