"""What a step of the ``Manager`` exchanges: reductions, gathers, tensors from one to another.

Owns ``ManagedCalls``, the part of the manager that its user calls with tensors.  Calls are carried
out one after the other, in the order in which they were made, which is the same at all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from torch import Tensor, nn

from danaus.collectives.quantising import Kind, kind_of
from danaus.collectives.reductions import Operation, check_reducible
from danaus.collectives.tensor_bytes import local_shard
from danaus.core.errors import ConfigError
from danaus.ft.gradients import gradients_of
from danaus.ft.managed_crew import ManagedCrew
from danaus.ft.pending import Pending

_WORDS = ("avg", "sum", "max", "min", "product")


def operation_of(reduce_op: object) -> Operation:
    """Return the operation that a word, or torch's ``ReduceOp``, stands for.

    Raises:
        ConfigError: It stands for none of ours.
    """
    word = str(reduce_op).rpartition(".")[2].lower()
    if word not in _WORDS:
        raise ConfigError(f"reduce_op is {reduce_op}", f"one of {', '.join(_WORDS)}")
    return cast(Operation, word)


class ManagedCalls:
    """Exchange tensors with the same rank of the other replicas, within a step.

    A tensor that is sharded inside the replica counts as this rank's part of it.
    """

    def _call(self, act: Callable[[], None], value: object) -> Pending:
        """Have ``act`` carried out in its turn."""
        raise NotImplementedError

    def _the_crew(self) -> ManagedCrew:
        """Return the members of the quorum; for calls as they are carried out."""
        raise NotImplementedError

    def allreduce(
        self,
        tensor: Tensor | list[Tensor],
        should_quantize: bool | Kind = False,
        reduce_op: object = "avg",
    ) -> Pending:
        """Replace a tensor by its mean over the replicas that contribute, in place.

        The sum is in the order of the replicas, whoever comes first; half precision is summed in
        float32.  A replica that does not contribute gets the result all the same.  After an error
        the tensor holds nobody's values, and the step does not commit.

        Args:
            tensor: Alike at all replicas, or a list of such; of sharded ones this rank's part.
            should_quantize: Whether numbers travel in a byte each: ``True`` and ``"int8"`` with
                even steps within a block, ``"fp8"`` with relative ones.  All replicas have the same
                result.  Sums and means of real floating point only.
            reduce_op: ``avg``, ``sum``, ``max``, ``min`` or ``product``; torch's ``ReduceOp`` too.

        Raises:
            ConfigError: No step is begun, or a tensor that this cannot be done with.
        """
        given = tensor if isinstance(tensor, list) else [tensor]
        parts = [local_shard(each) for each in given]
        operation, kind = operation_of(reduce_op), kind_of(should_quantize)
        for part in parts:
            check_reducible(part, operation, kind)
        return self._call(lambda: self._the_crew().average(parts, operation, kind), tensor)

    def allreduce_gradients(self, module: nn.Module | Iterable[Tensor]) -> None:
        """Replace each gradient of a module by its mean over the replicas; wait for all.

        The module may be sharded (``fully_shard``) or cut (``parallelize_module``) inside the
        replica: each rank reduces its part with the same rank of the other replicas.  A parameter
        that no loss has reached counts as a gradient of zeros.

        Args:
            module: The module, or its parameters, in one order at all replicas.
        """
        parameters = module.parameters() if isinstance(module, nn.Module) else module
        self.allreduce(gradients_of(parameters)).wait()

    def allgather(self, tensor: Tensor) -> tuple[list[Tensor], Pending]:
        """Gather every replica's tensor, spares included.

        Returns:
            A list that is filled by ``replica_rank`` once what comes with it is complete.
        """
        found: list[Tensor] = []
        part = local_shard(tensor)
        return found, self._call(lambda: found.extend(self._the_crew().allgather(part)), found)

    def broadcast(self, tensor: Tensor, root: int = 0) -> Pending:
        """Overwrite a tensor with that of the replica whose ``replica_rank`` is ``root``."""
        part = local_shard(tensor)
        return self._call(lambda: self._the_crew().broadcast(part, root), tensor)

    def reduce_scatter(
        self, output: Tensor, tensors: list[Tensor], reduce_op: object = "avg"
    ) -> Pending:
        """Reduce a list of tensors, one per replica of the quorum; keep this replica's.

        Args:
            output: Takes the reduction of ``tensors[replica_rank]``.
            tensors: Alike at all replicas; not changed.
            reduce_op: As for ``allreduce``.
        """
        operation = operation_of(reduce_op)
        for each in tensors:
            check_reducible(each, operation)

        def act() -> None:
            crew = self._the_crew()
            if len(tensors) != len(crew.replica_ids):
                raise ConfigError(
                    f"reduce_scatter of {len(tensors)} tensors",
                    f"one for each of {len(crew.replica_ids)} replicas",
                )
            summed = [each.detach().clone() for each in tensors]
            crew.average(summed, operation)
            output.detach().copy_(summed[crew.replica_rank])

        return self._call(act, output)

    def send(self, tensor: Tensor, dst: int) -> Pending:
        """Give a tensor to the replica whose ``replica_rank`` is ``dst``, which receives it."""
        part = local_shard(tensor)
        return self._call(lambda: self._the_crew().send(part, dst), tensor)

    def recv(self, tensor: Tensor, src: int) -> Pending:
        """Overwrite a tensor with what the replica whose ``replica_rank`` is ``src`` sends."""
        part = local_shard(tensor)
        return self._call(lambda: self._the_crew().receive(part, src), tensor)
