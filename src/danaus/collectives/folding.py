"""Folds leaf gradients into what a process brings to a reduction, as they are computed.

Owns the buffers of one process's partial sums.  ``LeafFolder`` keeps the order of ``tree``;
``LeafSum`` adds them up as they come.

Invariants:
    T-4: those of ``LeafFolder`` are the additions of the tree, whatever run of leaves this process
    holds.
    Memory: two buffers per level at most (one, where the run is a whole subtree), kept from
    step to step.
"""

from __future__ import annotations

import abc

import torch
from torch import Tensor

from danaus.collectives.tree import Node, partials, promote
from danaus.core.errors import ConfigError, InternalError


class Leaves(abc.ABC):
    """What a run of leaves is folded into, in buffers that are kept from step to step.

    Args:
        num_elements: Length of a flat gradient.
        device: Where the partials live.
    """

    def __init__(self, num_elements: int, device: torch.device | str = "cpu") -> None:
        self._num_elements = num_elements
        self._device = torch.device(device)
        self._free: list[Tensor] = []
        self._stack: list[tuple[Node, Tensor]] = []
        self._run = range(0)
        self._num_leaves = 0
        self._next = 0

    def begin(self, run: range, num_leaves: int) -> None:
        """Start over with ``run``; what ``partials`` returned before is no longer valid."""
        self._free.extend(buffer for _, buffer in self._stack)
        self._stack.clear()
        self._run, self._num_leaves, self._next = run, num_leaves, run.start

    @abc.abstractmethod
    def add(self, leaf: int, flat: Tensor) -> None:
        """Take the gradient of the run's next leaf; ``flat`` is read, not kept.

        Args:
            leaf: Its index; leaves come in order.
            flat: ``[num_elements]`` fp32, on the folder's device.

        Raises:
            ConfigError: Wrong dtype or length.
        """

    def partials(self) -> list[Tensor]:
        """Return what the run was folded into; valid until ``begin``.

        Raises:
            InternalError: Leaves of the run are missing.
        """
        if self._next != self._run.stop and len(self._run) > 0:
            raise InternalError("T-4", f"run {self._run} asked for after leaf {self._next - 1}")
        return [value for _, value in self._stack]

    def _count(self, leaf: int, flat: Tensor) -> None:
        if leaf != self._next or leaf not in self._run:
            raise InternalError("T-4", f"leaf {leaf} came where {self._next} of {self._run} is due")
        if flat.dtype != torch.float32 or flat.numel() != self._num_elements:
            raise ConfigError(
                what=f"leaf {leaf} has {flat.numel()} elements of {flat.dtype}",
                needed=f"{self._num_elements} of torch.float32",
            )
        self._next += 1

    def _buffer(self) -> Tensor:
        if self._free:
            return self._free.pop()
        return torch.empty(self._num_elements, dtype=torch.float32, device=self._device)


class LeafFolder(Leaves):
    """A stack of partial sums that counts in binary: equal neighbours are added at once.

    ``partials`` are those of ``tree.partials``, one for each node.
    """

    def add(self, leaf: int, flat: Tensor) -> None:
        self._count(leaf, flat)
        node, value = promote(Node(0, leaf), self._num_leaves), flat.reshape(-1)
        while self._stack and self._completes(node):
            left, buffer = self._stack.pop()
            torch.add(buffer, value, out=buffer)
            if value is not flat and value.data_ptr() != flat.data_ptr():
                self._free.append(value)
            node, value = promote(Node(left.level + 1, left.place // 2), self._num_leaves), buffer
        if value.data_ptr() == flat.data_ptr():
            value = self._buffer().copy_(value)
        self._stack.append((node, value))

    def _completes(self, node: Node) -> bool:
        """Tell whether ``node`` is the right half whose left half is on top of the stack."""
        top = self._stack[-1][0]
        return node.place % 2 == 1 and top == Node(node.level, node.place - 1)

    def partials(self) -> list[Tensor]:
        values = super().partials()
        nodes = tuple(node for node, _ in self._stack)
        if nodes != partials(self._run, self._num_leaves):
            raise InternalError("T-4", f"run {self._run} was folded into {nodes}")
        return values


class LeafSum(Leaves):
    """One sum of all leaves of a run, added as they come: for ``tree.plan_shares``.

    One buffer, whatever the run; the bits depend on it.
    """

    def add(self, leaf: int, flat: Tensor) -> None:
        self._count(leaf, flat)
        if self._stack:
            self._stack[0][1].add_(flat.reshape(-1))
        else:
            self._stack.append((Node(0, 0), self._buffer().copy_(flat.reshape(-1))))
