"""Means over the replicas that bring something, on their way while training goes on.

Owns the way from tensors to buffers, through one reduction of a ``Manager`` each, and back; and
what is asked of a manager for it.  What is brought is not changed, so that it can be brought again.

Invariants:
    T-6: who brings nothing is not divided by.
    Every tensor is in the mean, whatever its size and the buckets'.
    Quantised or not, the mean has the same bits at every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from danaus.collectives import quantising
from danaus.collectives.quantising import Kind
from danaus.collectives.reductions import Stretch, fill_buckets
from danaus.ft.pending import Pending

BUCKET_MB = 1024.0
_MIB = 1 << 20


class OuterManager(Protocol):
    """What training apart asks of a ``Manager``; its meaning is told there."""

    def register_state_dict_fn(
        self,
        key: str,
        load_state_dict: Callable[[Any], object],
        state_dict: Callable[[], Any],
        *,
        compared: bool = True,
    ) -> None: ...
    def do_not_compare(self, *patterns: str) -> None: ...
    def replica_id(self) -> str: ...
    def start_quorum(self) -> None: ...
    def wait_quorum(self) -> None: ...
    def is_participating(self) -> bool: ...
    def allreduce(
        self, tensor: Tensor, should_quantize: bool | Kind = False, reduce_op: object = "avg"
    ) -> Pending: ...
    def allgather(self, tensor: Tensor) -> tuple[list[Tensor], Pending]: ...
    def errored(self) -> Exception | None: ...
    def should_commit(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Wiring:
    """How tensors travel.

    Attributes:
        kind: What they are quantised to; None: they are exact.
        bucket_bytes: Size of the buffers that they are packed into; None: each goes by itself.
    """

    kind: Kind | None = None
    bucket_bytes: int | None = None

    def buckets(self, tensors: Sequence[Tensor]) -> list[tuple[Stretch, ...]]:
        """Return what goes into each buffer: of tensors of one dtype."""
        by_dtype: dict[torch.dtype, list[int]] = {}
        for item, tensor in enumerate(tensors):
            by_dtype.setdefault(tensor.dtype, []).append(item)
        if self.bucket_bytes is None:
            return [(Stretch(item, 0, each.numel()),) for item, each in enumerate(tensors)]
        found: list[tuple[Stretch, ...]] = []
        for dtype, items in by_dtype.items():
            cap = max(1, self.bucket_bytes // dtype.itemsize)
            filled = fill_buckets([tensors[item].numel() for item in items], cap)
            found += [
                tuple(each._replace(item=items[each.item]) for each in bucket) for bucket in filled
            ]
        return found


class Reduction:
    """One mean: begun when it is made, there after ``wait``.

    Args:
        manager: Whose step it is a part of; all its replicas reduce alike.
        tensors: What this replica brings; not changed.
        brings: Whether it brings them, or only their shapes.
        wiring: How they travel, the same at all replicas.
    """

    def __init__(
        self, manager: OuterManager, tensors: Sequence[Tensor], *, brings: bool, wiring: Wiring
    ) -> None:
        self._manager, self._shapes = manager, [tensor.shape for tensor in tensors]
        flats = [tensor.detach().reshape(-1) for tensor in tensors]
        self._mean = [torch.empty_like(flat) for flat in flats]
        self._weight = torch.tensor([float(brings)])
        self._pending = [manager.allreduce(self._weight, reduce_op="sum")]
        counts = brings and (wiring.kind is None or manager.is_participating())
        self._arrivals: list[tuple[tuple[Stretch, ...], Callable[[], Tensor]]] = []
        for bucket in wiring.buckets(flats):
            packed = torch.cat([flats[item][start:stop] for item, start, stop in bucket])
            sent = packed if counts else torch.zeros_like(packed)
            arrival = self._send(sent) if wiring.kind is None else self._gather(sent, wiring.kind)
            self._arrivals.append((bucket, arrival))

    def _send(self, buffer: Tensor) -> Callable[[], Tensor]:
        self._pending.append(self._manager.allreduce(buffer, reduce_op="sum"))
        return lambda: buffer

    def _gather(self, buffer: Tensor, kind: Kind) -> Callable[[], Tensor]:
        given, pending = self._manager.allgather(quantising.pack(buffer, kind))
        self._pending.append(pending)
        return lambda: quantising.sum_of(given, buffer.numel(), kind)

    def wait(self) -> float:
        """Wait for the mean; return how many replicas brought something.

        Without effect on ``mean`` where the step has failed or nobody has; 0 then.
        """
        for each in self._pending:
            each.wait()
        if self._manager.errored() is not None:
            return 0.0
        weight = self._weight.item()
        if weight:
            for bucket, arrival in self._arrivals:
                _spread(arrival().div_(weight), bucket, self._mean)
        return weight

    @property
    def mean(self) -> list[Tensor]:
        """The means, shaped as what was brought."""
        return [flat.view(shape) for flat, shape in zip(self._mean, self._shapes, strict=True)]


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return what numbers of this kind are averaged in, and rounded from at the end."""
    return torch.promote_types(dtype, torch.float32)


def _spread(buffer: Tensor, bucket: Sequence[Stretch], flats: Sequence[Tensor]) -> None:
    """Copy what a buffer holds to where each part of it belongs."""
    at = 0
    for item, start, stop in bucket:
        flats[item][start:stop].copy_(buffer[at : at + stop - start])
        at += stop - start


def wiring_of(
    should_quantize: bool | Kind, use_bucketization: bool, bucket_cap_mb: float | None
) -> Wiring:
    """Return the wiring of TorchFT's options.

    Args:
        should_quantize: True is ``int8``.
        use_bucketization: Whether tensors share buffers.
        bucket_cap_mb: Size of a buffer in MiB.

    Raises:
        ConfigError: Another kind of numbers.
    """
    kind = quantising.kind_of(should_quantize)
    cap = BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb
    return Wiring(kind, int(cap * _MIB) if use_bucketization else None)
