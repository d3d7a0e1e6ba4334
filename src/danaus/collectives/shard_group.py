"""The group inside a replica: torch's, with members that can be exchanged under a living module.

Owns ``ShardGroup``, a torch process group that FSDP2 is given once.  What carries its traffic, a
Gloo group, is made anew whenever its members change (H-3), while modules, meshes and sharded
tensors that hold the ``ShardGroup`` stay as they are.

Invariants:
    W-5: the inner group meets in a store of ours and binds to the interface that was chosen; its
    connections are not authenticated.
    A collective is over when the call returns, and a lost sibling is ``PeerLost``.  Waiting at
    once gives up an overlap that a CPU does not have.
    A call that is blocked by a stopped sibling ends when that sibling is killed or at the limit:
    Gloo cannot be aborted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.distributed.device_mesh import DeviceMesh

from danaus.core.errors import ConfigError, ExchangeAborted, PeerLost

_BACKEND = "danaus"
_AXIS = "shard"
# Collectives by their names in torch 2.9 to 2.13; what a version lacks is never called.
_COLLECTIVES = (
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
)


class ShardGroup(dist.ProcessGroup):
    """All processes of one replica, as torch sees them.

    Args:
        rank: This process's rank in the replica.
        size: Processes of the replica; neither changes.
        on_wait: Told true as a collective begins, and false when it is over (P-3).
    """

    def __init__(
        self, rank: int, size: int, *, on_wait: Callable[[bool], None] | None = None
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # the stubs lack this one
        self._place, self._num_members = rank, size
        self._on_wait = on_wait or (lambda _: None)
        self._name = _AXIS
        self._inner: dist.ProcessGroup | None = None
        self._reason = "it has not been configured"
        self._waited_s = 0.0

    # -- members ------------------------------------------------------------------------------

    def configure(
        self,
        store: Store,
        generation: str,
        *,
        limit_s: float,
        bind: str = "127.0.0.1",
    ) -> None:
        """Meet the present members; those before them are forgotten.  Blocks until all are here.

        Args:
            store: Where they meet.
            generation: The same at all of them, and new each time.
            limit_s: How long meeting, and then each collective, may take.
            bind: Local address or host name whose interface carries the traffic.

        Raises:
            PeerLost: They did not all come.
        """
        self.dismiss("its members are being exchanged")
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=bind)]
        options._timeout = timedelta(seconds=limit_s)
        meeting = PrefixStore(f"shard/{generation}", store)
        inner = dist.ProcessGroup(meeting, self._place, self._num_members)
        kind = dist.ProcessGroup.BackendType.GLOO
        try:
            gloo = dist.ProcessGroupGloo(meeting, self._place, self._num_members, options)
        except RuntimeError as error:
            raise PeerLost("a sibling", f"it did not come to {generation}: {error}") from error
        inner._register_backend(torch.device("cpu"), kind, gloo)
        inner._set_default_backend(kind)
        self._inner = inner

    def dismiss(self, reason: str) -> None:
        """Let the members go; collectives raise ``ExchangeAborted`` until new ones are here."""
        self._inner, self._reason = None, reason

    def _carry(self, name: str, *args: Any, **options: Any) -> Any:
        """Run a collective of the inner group to its end."""
        inner = self._inner
        if inner is None:
            raise ExchangeAborted(f"the group inside the replica has no members: {self._reason}")
        began_s = time.monotonic()
        self._on_wait(True)
        try:
            work = getattr(inner, name)(*args, **options)
            work.wait()
        except RuntimeError as error:
            self.dismiss(f"{name} failed")
            raise PeerLost("a sibling", str(error)) from error
        finally:
            self._on_wait(False)
        self._waited_s += time.monotonic() - began_s
        return work

    def take_waited_s(self) -> float:
        """Return the seconds spent in collectives since this was last asked."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    # -- what torch asks ----------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802  torch's spelling
        return _BACKEND

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name


def _collective(name: str) -> Callable[..., Any]:
    def carry(self: ShardGroup, *args: Any, **options: Any) -> Any:
        return self._carry(name, *args, **options)

    carry.__name__ = name
    return carry


for _name in _COLLECTIVES:
    setattr(ShardGroup, _name, _collective(_name))


def install(group: ShardGroup) -> DeviceMesh:
    """Make ``group`` this process's default group; return its mesh, for ``fully_shard``.

    Torch wants one default group per process, and a mesh is made over it.  Nothing is sent.

    Raises:
        ConfigError: The process has a default group.
    """
    if dist.is_initialized():
        raise ConfigError(
            what="this process has a default process group of its own",
            needed="none: danaus makes the groups inside a replica",
        )
    dist.Backend.register_backend(_BACKEND, lambda *_: group, devices=["cpu"], extended_api=True)
    dist.init_process_group(_BACKEND, store=HashStore(), rank=group.rank(), world_size=group.size())
    return DeviceMesh.from_group(group, "cpu", mesh_dim_names=(_AXIS,))


def uninstall() -> None:
    """Forget this process's default group."""
    if dist.is_initialized():
        dist.destroy_process_group()
