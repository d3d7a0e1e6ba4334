"""Sums and averages over the members of a group, for loops that bring tensors instead of leaves.

Owns buckets: tensors of one reduction are packed into flat buffers of a bounded size, kept from
step to step; one that is larger than a bucket is cut.  The trainer's own path (leaves, constant
batch) does not pass here.

Invariants:
    T-6: who contributes nothing is not divided by.
    The bits depend on who contributes, in the order of the subset, and on nothing else.
    Half precision is summed in fp32 and rounded once; other numbers are summed as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from danaus.collectives.group import Group
from danaus.collectives.moving import gather
from danaus.collectives.quantising import Kind, pack, sum_of
from danaus.collectives.tree import ReductionPlan, plan_shares
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError

BUCKET_BYTES = 32 << 20
Operation = Literal["avg", "sum", "max", "min", "product"]
_BY_TREE = (torch.float16, torch.bfloat16, torch.float32)
_FLOAT_BYTES = 4
_IN_ORDER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "avg": torch.add,
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "product": torch.mul,
}


class Stretch(NamedTuple):
    """Elements ``[start, stop)`` of item number ``item``."""

    item: int
    start: int
    stop: int


def fill_buckets(sizes: Sequence[int], cap: int) -> tuple[tuple[Stretch, ...], ...]:
    """Pack items in order into buckets of at most ``cap``; an item larger than that is cut.

    Args:
        sizes: Elements of each item.
        cap: Elements of a bucket.

    Returns:
        What each bucket holds.
    """
    buckets: list[list[Stretch]] = []
    filled = 0
    for item, size in enumerate(sizes):
        for start in range(0, max(size, 1), cap):
            stop = min(start + cap, size)
            if not buckets or filled + stop - start > cap:
                buckets.append([])
                filled = 0
            buckets[-1].append(Stretch(item, start, stop))
            filled += stop - start
    return tuple(tuple(bucket) for bucket in buckets)


def plan_contributions(subset: Sequence[str], contributors: Sequence[str]) -> ReductionPlan:
    """Return the plan in which each contributor brings one leaf and the others none."""
    return plan_shares(tuple(range(name in contributors) for name in subset))


def check_reducible(tensor: Tensor, operation: Operation, quantised_to: Kind | None = None) -> None:
    """Raise ``ConfigError`` for a tensor that ``operation`` cannot be done with."""
    kind = tensor.dtype
    if quantised_to and not (kind.is_floating_point and operation in ("avg", "sum")):
        raise ConfigError(
            what=f"cannot reduce {kind} by {operation} quantised",
            needed="sums and averages of real floating point",
            to_do="leave should_quantize out",
        )
    if kind == torch.bool or tensor.is_sparse or tensor.is_quantized or kind.itemsize == 0:
        raise ConfigError(what=f"cannot reduce {kind}, {tensor.layout}", needed="dense numbers")
    if operation == "avg" and not (kind.is_floating_point or kind.is_complex):
        raise ConfigError(
            what=f"cannot average {kind}", needed="floating point", to_do="sum whole numbers"
        )
    if operation not in _IN_ORDER or (kind.is_complex and operation in ("max", "min")):
        raise ConfigError(what=f"cannot reduce {kind} by {operation}", needed=", ".join(_IN_ORDER))


class Averager:
    """Reduces tensors in place, over the same members each time; all of them call alike.

    After an error some tensors hold results and some do not.

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
        operation: Operation = "avg",
        kind: Kind | None = None,
    ) -> None:
        """Replace each tensor by its mean, or another reduction, over the contributors.

        Args:
            tensors: Alike at all members; averages want floating point.  Those on a device pass
                through the memory of the CPU.
            deadline: When to give up.
            contributors: The members whose tensors count (a learner's do not); all unless given.
            operation: What is done.
            kind: What numbers are sent as, in a byte each; None: as they are.

        Raises:
            ConfigError: A tensor that this cannot be done with, or nobody contributes.
        """
        chosen = self._subset if contributors is None else tuple(contributors)
        for tensor in tensors:
            check_reducible(tensor, operation, kind)
        if kind is not None:
            self._quantised(tensors, chosen, kind, operation=operation, deadline=deadline)
            return
        plain = operation in ("avg", "sum")
        by_tree = [each for each in tensors if plain and _real(each).dtype in _BY_TREE]
        divisor = float(len(chosen)) if operation == "avg" else 1.0
        self._in_tree([_real(each) for each in by_tree], chosen, divisor, deadline=deadline)
        for tensor in tensors:
            if not any(tensor is each for each in by_tree):
                self._in_order(tensor, chosen, operation, deadline=deadline)

    def _in_tree(
        self,
        tensors: Sequence[Tensor],
        chosen: Sequence[str],
        divisor: float,
        *,
        deadline: Deadline,
    ) -> None:
        """Sum in fp32 along the tree, bucket by bucket, and divide."""
        _check_anybody(chosen)
        plan = plan_contributions(self._subset, chosen)
        gives = self._group.me in chosen
        flats = [tensor.detach().reshape(-1) for tensor in tensors]
        for bucket in fill_buckets([flat.numel() for flat in flats], self._cap):
            parts = [flats[item][start:stop] for item, start, stop in bucket]
            sent, summed = self._room(sum(part.numel() for part in parts))
            self._group.reduce_tree(
                [_pack(parts, sent)] if gives else [],
                summed,
                plan=plan,
                subset=self._subset,
                deadline=deadline,
            )
            _unpack(summed.div_(divisor), parts)
        _put_back(flats, tensors)

    def _in_order(
        self, tensor: Tensor, chosen: Sequence[str], operation: Operation, *, deadline: Deadline
    ) -> None:
        """Add up what cannot be summed in fp32: everyone gets all of it, bucket by bucket."""
        _check_anybody(chosen)
        flat = tensor.detach().reshape(-1)
        for bucket in fill_buckets([flat.numel()], self._cap):
            for _, start, stop in bucket:
                part = flat[start:stop].cpu()
                given = gather(self._group, part, subset=self._subset, deadline=deadline)
                counted = [given[self._subset.index(name)] for name in chosen]
                total = counted[0].clone()
                for each in counted[1:]:
                    total = _IN_ORDER[operation](total, each)
                flat[start:stop].copy_(total / len(chosen) if operation == "avg" else total)
        _put_back([flat], [tensor])

    def _quantised(
        self,
        tensors: Sequence[Tensor],
        chosen: Sequence[str],
        kind: Kind,
        *,
        operation: Operation,
        deadline: Deadline,
    ) -> None:
        """Have everyone get all of it, in a byte for each number, and add it up."""
        _check_anybody(chosen)
        flats = [tensor.detach().reshape(-1) for tensor in tensors]
        for bucket in fill_buckets([flat.numel() for flat in flats], self._cap):
            parts = [flats[item][start:stop] for item, start, stop in bucket]
            mine = torch.cat([part.float().cpu() for part in parts])
            given = gather(self._group, pack(mine, kind), subset=self._subset, deadline=deadline)
            counted = [given[self._subset.index(name)] for name in chosen]
            total = sum_of(counted, mine.numel(), kind)
            _unpack(total / len(chosen) if operation == "avg" else total, parts)
        _put_back(flats, tensors)

    def _room(self, num_elements: int) -> tuple[Tensor, Tensor]:
        if self._buffers[0].numel() < num_elements:
            self._buffers = (torch.empty(num_elements), torch.empty(num_elements))
        return self._buffers[0][:num_elements], self._buffers[1][:num_elements]


def _check_anybody(contributors: Collection[str]) -> None:
    if not contributors:
        raise ConfigError(what="an average over nobody", needed="a member that contributes")


def _real(tensor: Tensor) -> Tensor:
    """Return a complex tensor as pairs of real numbers, any other as it is; same memory."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def _pack(parts: Sequence[Tensor], flat: Tensor) -> Tensor:
    """Copy parts one after another into ``flat``; return it."""
    at = 0
    for part in parts:
        flat[at : at + part.numel()].copy_(part)
        at += part.numel()
    return flat


def _unpack(flat: Tensor, parts: Sequence[Tensor]) -> None:
    """Copy what belongs to each part back, rounding to its dtype."""
    at = 0
    for part in parts:
        part.copy_(flat[at : at + part.numel()])
        at += part.numel()


@torch.no_grad()
def _put_back(flats: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Write flat copies back to those tensors that had to be copied to be flat."""
    for flat, tensor in zip(flats, tensors, strict=True):
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
