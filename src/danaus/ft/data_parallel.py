"""A module whose gradients are averaged over the replicas as its backward computes them.

Owns ``DistributedDataParallel``: buckets of parameters, in an order that is the same at every
replica and at every step, whatever order autograd goes in.

Invariants:
    Every bucket is reduced once in each backward, in order: one that no loss has reached as well.
    When ``backward`` returns, each gradient is the mean over the replicas, or the step has failed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from danaus.collectives.reductions import fill_buckets
from danaus.core.errors import ConfigError
from danaus.ft.gradients import gradients_of
from danaus.ft.managing import Manager
from danaus.ft.pending import Pending
from danaus.ft.sharding import is_sharded

BUCKET_MB = 25.0
_MEANS_NOTHING = (
    "broadcast_buffers",
    "device_ids",
    "dim",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "output_device",
    "static_graph",
)


class DistributedDataParallel(nn.Module):
    """Wrap a module; call the wrapper, and train as before.

    A module that is sharded inside the replica (``fully_shard``, ``parallelize_module``) is
    averaged at the end of its backward, each rank with the same rank of the other replicas; any
    other while the backward goes on.

    Args:
        manager: Whose step it is.
        module: The same at every replica.
        bucket_cap_mb: Size of a bucket in MiB of float32.
        options: What torch's class of this name takes besides; none of it is needed here.

    Raises:
        ConfigError: An option that torch's does not have, or nothing to train.
    """

    def __init__(
        self,
        manager: Manager,
        module: nn.Module,
        *,
        bucket_cap_mb: float | None = None,
        **options: object,
    ) -> None:
        super().__init__()
        for name in options:
            if name not in _MEANS_NOTHING:
                raise ConfigError(f"DistributedDataParallel has no option {name}")
        trained = [each for each in module.parameters() if each.requires_grad]
        if not trained:
            raise ConfigError("a module without a parameter to train", "one that is trained")
        self.module = module
        self._manager = manager
        self._averages = True
        self._buckets = buckets_of(trained, bucket_cap_mb or BUCKET_MB)
        self._backward: _Backward | None = None
        self._at_end_only = any(is_sharded(each) for each in trained)
        if not self._at_end_only:
            for number, bucket in enumerate(self._buckets):
                for parameter in bucket:
                    parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        functools.partial(self._arrived, number)
                    )

    def forward(self, *args: Any, **options: Any) -> Any:
        """Run the module."""
        result = self.module(*args, **options)
        if self._at_end_only and self._averages and torch.is_grad_enabled():
            for each in tree_leaves(result):
                if isinstance(each, Tensor) and each.requires_grad:
                    each.register_hook(self._begun)  # type: ignore[no-untyped-call]
        return result

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients inside, forward and backward; the next backward averages them."""
        before, self._averages = self._averages, False
        try:
            yield
        finally:
            self._averages = before

    def _begun(self, _gradient: Tensor) -> None:
        """A backward reaches the module: average at its end."""
        self._current()

    def _arrived(self, number: int, _parameter: Tensor) -> None:
        """A parameter of a bucket has its gradient; reduce the buckets that are whole, in order."""
        if self._averages:
            self._current().arrived(number)

    def _current(self) -> _Backward:
        """Return the backward in hand; one that begins is ended by autograd itself."""
        if self._backward is None:
            self._backward = _Backward(self._manager, self._buckets)
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)
        return self._backward

    def _finish(self) -> None:
        backward, self._backward = self._backward, None
        if backward is not None:
            backward.finish()


class _Backward:
    """The buckets of one backward.

    Args:
        manager: Averages them.
        buckets: All of them, in order.
    """

    def __init__(self, manager: Manager, buckets: Sequence[Sequence[nn.Parameter]]) -> None:
        self._manager, self._buckets = manager, buckets
        self._num_missing = [len(bucket) for bucket in buckets]
        self._next = 0
        self._pending: list[Pending] = []

    def arrived(self, number: int) -> None:
        """Count a gradient."""
        self._num_missing[number] -= 1
        while self._next < len(self._buckets) and self._num_missing[self._next] <= 0:
            self._reduce()

    def finish(self) -> None:
        """Reduce what is left; wait for all."""
        while self._next < len(self._buckets):
            self._reduce()
        for pending in self._pending:
            pending.wait()

    def _reduce(self) -> None:
        bucket = self._buckets[self._next]
        self._next += 1
        self._pending.append(self._manager.allreduce(gradients_of(bucket)))


def buckets_of(parameters: Sequence[nn.Parameter], cap_mb: float) -> list[list[nn.Parameter]]:
    """Return parameters in buckets of at most ``cap_mb`` MiB, those of the last layers first.

    A parameter that is larger is in a bucket with what begins in its last part.
    """
    ordered = list(reversed(parameters))
    cap = max(1, int(cap_mb * (1 << 20)) // 4)
    buckets: list[list[nn.Parameter]] = []
    for bucket in fill_buckets([each.numel() for each in ordered], cap):
        begun = [ordered[item] for item, start, _ in bucket if start == 0]
        if begun:
            buckets.append(begun)
    return buckets
