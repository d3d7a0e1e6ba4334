"""The ranks of one replica find each other: the group that shards a replica over processes.

Owns ``Shards``: the group of one incarnation of a replica, its meeting place included.  Rank 0
holds the store that they meet in; Gloo carries the traffic on the loopback interface (W-5).
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from types import TracebackType
from typing import Self

from danaus.ft.place import Place
from danaus.train.parallel import ALONE, ShardPlace
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.store import StoreThread
from danaus.wire.store_client import StoreClient

_MEET_LIMIT_S = 30.0
_COLLECTIVE_LIMIT_S = 3600.0
"""Who hangs is judged by progress (P-3), and a dead sibling ends a collective at once."""


class Shards:
    """This process's place among the ranks of its replica, for as long as the context is open.

    Args:
        place: Who this process is.
        sockets: A folder for unix sockets.
    """

    def __init__(self, place: Place, sockets: str) -> None:
        self._who, self._sockets = place, sockets
        self._open = contextlib.ExitStack()
        self.place: ShardPlace = ALONE

    def __enter__(self) -> Self:
        if self._who.num_ranks > 1:
            with contextlib.ExitStack() as opening:
                self.place = self._meet(opening)
                self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def _meet(self, opening: contextlib.ExitStack) -> ShardPlace:
        """Meet the other ranks of this incarnation."""
        who = self._who
        # Loads torch.distributed, which a replica of one process does without.
        groups = import_module("danaus.collectives.shard_group")
        stores = import_module("danaus.collectives.store")
        secret = Secret.load(who.secret_path)
        name = f"{who.replica_id}-store-{who.incarnation}"
        address = Address.parse(f"unix:{self._sockets}/{name}")
        if who.rank == 0:
            opening.callback(StoreThread(address, secret).close)
        client = StoreClient(address, secret, limit_s=_MEET_LIMIT_S)
        opening.callback(client.close)
        group = groups.ShardGroup(who.rank, who.num_ranks)
        store = stores.WireStore(client, limit_s=_MEET_LIMIT_S)
        group.configure(store, str(who.incarnation), limit_s=_COLLECTIVE_LIMIT_S)
        opening.callback(groups.uninstall)
        mesh = groups.install(group)
        return ShardPlace(rank=who.rank, size=who.num_ranks, mesh=mesh)
