"""The ranks of one replica find each other: the group that shards a replica over processes.

Owns ``Shards``: a group that stays while its members are exchanged (H-3), and the meeting place of
each incarnation.  Rank 0 of it holds the store that they meet in; Gloo carries the traffic on the
loopback interface (W-5).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from danaus.core.errors import ChannelClosed, PeerLost
from danaus.ft.place import Place
from danaus.train.parallel import ALONE, ShardPlace
from danaus.wire.address import Address
from danaus.wire.position import PositionBlock
from danaus.wire.secret import Secret
from danaus.wire.store import StoreThread
from danaus.wire.store_client import StoreClient

_MEET_LIMIT_S = 30.0
_COLLECTIVE_LIMIT_S = 3600.0
"""Who hangs is judged by progress (P-3), and a dead sibling ends a collective at once."""
Breakable = Callable[[Callable[[str], None] | None], None]
"""Told how another thread breaks a meeting off, then None: it is over."""


class Shards:
    """This process's place among the ranks of its replica, for as long as the context is open.

    Args:
        place: Who this process is.
        sockets: A folder for unix sockets.
        position: Where it is said that this process waits for the others.
    """

    def __init__(self, place: Place, sockets: str, position: PositionBlock | None = None) -> None:
        self._who, self._sockets, self._position = place, sockets, position
        self._open, self._meeting = contextlib.ExitStack(), contextlib.ExitStack()
        self._group: Any = None
        self.place: ShardPlace = ALONE

    def __enter__(self) -> Self:
        if self._who.num_ranks > 1:
            with contextlib.ExitStack() as opening:
                # Loads torch.distributed, which a replica of one process does without.
                groups = import_module("danaus.collectives.shard_group")
                on_wait = self._position.wait_for_siblings if self._position else None
                group = self._group = groups.ShardGroup(
                    self._who.rank, self._who.num_ranks, on_wait=on_wait
                )
                opening.callback(groups.uninstall)
                opening.callback(self.part)
                self.meet(self._who)
                mesh = groups.install(group)
                self.place = ShardPlace(rank=group.rank(), size=group.size(), mesh=mesh)
                self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def meet(self, who: Place, breakable: Breakable = lambda _: None) -> None:
        """Meet the other ranks of an incarnation; those of the one before are forgotten.

        Args:
            who: Who this process is in it; its rank does not change.
            breakable: Told how it is broken off.

        Raises:
            PeerLost: They did not all come, or it was broken off.
        """
        self.part()
        stores = import_module("danaus.collectives.store")
        secret = Secret.load(who.secret_path)
        name = f"{who.replica_id}-store-{who.incarnation}"
        address = Address.parse(f"unix:{self._sockets}/{name}")
        with contextlib.ExitStack() as opening:
            if who.rank == 0:
                opening.callback(StoreThread(address, secret).close)
            client = StoreClient(address, secret, limit_s=_MEET_LIMIT_S)
            opening.callback(client.close)
            store = stores.WireStore(client, limit_s=_MEET_LIMIT_S)
            breakable(lambda _: client.close())
            try:
                self._group.configure(store, str(who.incarnation), limit_s=_COLLECTIVE_LIMIT_S)
            except ChannelClosed as error:
                why = f"nobody waits for {who.incarnation} any more"
                raise PeerLost("a sibling", why) from error
            finally:
                breakable(None)
            self._meeting = opening.pop_all()

    def part(self) -> None:
        """Let the other ranks go: whoever waits for this one in a collective is told by that."""
        if self._group is not None:
            self._group.dismiss("its replica has lost a rank")
            gc.collect()  # what a broken pass has left may hold their connections
        self._meeting.close()
