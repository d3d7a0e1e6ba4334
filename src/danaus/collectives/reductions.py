"""Averages over the members of a group, for loops that bring tensors instead of leaves.

Owns buckets: tensors of one reduction are packed into flat fp32 buffers of a bounded size, kept
from step to step.  The trainer's own path (leaves, constant batch) does not pass here.

Invariants:
    T-6: who contributes nothing is not divided by.
    Half precision is summed in fp32 and rounded once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.collectives.group import Group
from danaus.collectives.tree import ReductionPlan, plan_reduction
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError

BUCKET_BYTES = 32 << 20
_TAKEN = (torch.float16, torch.bfloat16, torch.float32)
_FLOAT_BYTES = 4
_WEIGHT = struct.Struct("<d")


def fill_buckets(sizes: Sequence[int], cap: int) -> tuple[tuple[int, ...], ...]:
    """Pack items in order into buckets of at most ``cap``; a larger item has one for itself.

    Args:
        sizes: Elements of each item.
        cap: Elements of a bucket.

    Returns:
        The items of each bucket, by index.
    """
    buckets: list[list[int]] = []
    filled = 0
    for index, size in enumerate(sizes):
        if not buckets or filled + size > cap:
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += size
    return tuple(tuple(bucket) for bucket in buckets)


def plan_contributions(subset: Sequence[str], contributors: Sequence[str]) -> ReductionPlan:
    """Return the plan in which each contributor brings one leaf and the others none."""
    runs: list[range] = []
    at = 0
    for name in subset:
        end = at + (name in contributors)
        runs.append(range(at, end))
        at = end
    return plan_reduction(at, tuple(runs))


class Averager:
    """Averages tensors in place, over the same members each time; all of them call alike.

    After an error some tensors hold averages and some do not.

    Args:
        group: A formed group.
        subset: The members that take part.
        bucket_bytes: Size of a bucket in fp32.
    """

    def __init__(
        self, group: Group, subset: Sequence[str], *, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self._group, self._subset = group, tuple(subset)
        self._cap = max(1, bucket_bytes // _FLOAT_BYTES)
        self._buffers = (torch.empty(0), torch.empty(0))

    def average(
        self,
        tensors: Sequence[Tensor],
        *,
        deadline: Deadline,
        contributors: Sequence[str] | None = None,
    ) -> None:
        """Replace each tensor by its mean over the contributors.

        Args:
            tensors: fp16, bf16 or fp32 on the CPU, alike at all members.
            deadline: When to give up.
            contributors: The members whose tensors count (a learner's do not); all unless given.

        Raises:
            ConfigError: A tensor of another dtype, or nobody contributes.
        """
        chosen = self._subset if contributors is None else tuple(contributors)
        weights = dict.fromkeys(chosen, 1.0)
        self._mean(tensors, weights, deadline)

    def weighted_mean(
        self, tensors: Sequence[Tensor], *, weight: float, deadline: Deadline
    ) -> float:
        """Replace each tensor by its mean weighted with each member's ``weight``.

        Args:
            tensors: fp16, bf16 or fp32 on the CPU, alike at all members.
            weight: Of this member, for example its tokens; 0 contributes nothing.
            deadline: When to give up.

        Returns:
            The sum of the weights.

        Raises:
            ConfigError: A tensor of another dtype, or no weight at all.
        """
        given = self._group.exchange_small(
            _WEIGHT.pack(weight), deadline=deadline, subset=self._subset
        )
        weights = {name: float(_WEIGHT.unpack(given[name])[0]) for name in self._subset}
        return self._mean(tensors, {n: w for n, w in weights.items() if w > 0}, deadline)

    def _mean(
        self, tensors: Sequence[Tensor], weights: dict[str, float], deadline: Deadline
    ) -> float:
        for tensor in tensors:
            if tensor.dtype not in _TAKEN:
                raise ConfigError(
                    what=f"cannot average {tensor.dtype}", needed="fp16, bf16 or fp32"
                )
        if not weights:
            raise ConfigError(what="an average over nobody", needed="a member that contributes")
        plan = plan_contributions(self._subset, tuple(weights))
        mine, total = weights.get(self._group.me), sum(weights.values())
        for bucket in fill_buckets([tensor.numel() for tensor in tensors], self._cap):
            items = [tensors[index] for index in bucket]
            sent, summed = self._room(sum(item.numel() for item in items))
            if mine is not None:
                _pack(items, sent).mul_(mine)
            self._group.reduce_tree(
                [] if mine is None else [sent],
                summed,
                plan=plan,
                subset=self._subset,
                deadline=deadline,
            )
            _unpack(summed.div_(total), items)
        return total

    def _room(self, num_elements: int) -> tuple[Tensor, Tensor]:
        if self._buffers[0].numel() < num_elements:
            self._buffers = (torch.empty(num_elements), torch.empty(num_elements))
        return self._buffers[0][:num_elements], self._buffers[1][:num_elements]


def _pack(items: Sequence[Tensor], flat: Tensor) -> Tensor:
    """Copy tensors one after another into ``flat``; return it."""
    at = 0
    for item in items:
        flat[at : at + item.numel()].copy_(item.detach().reshape(-1))
        at += item.numel()
    return flat


@torch.no_grad()
def _unpack(flat: Tensor, items: Sequence[Tensor]) -> None:
    """Copy the parts of ``flat`` back, rounding to each tensor's dtype."""
    at = 0
    for item in items:
        item.copy_(flat[at : at + item.numel()].view(item.shape))
        at += item.numel()
