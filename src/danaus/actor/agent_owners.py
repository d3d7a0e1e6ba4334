"""No mesh outlives its owner (A-7): workers end when the worker that owns them does.

Workers that a controller owns are no matter of this module: they end with it, or not, by the
agent's lifeline.
"""

from __future__ import annotations

from danaus.actor.agent_workers import WorkerTable
from danaus.core.errors import ChannelClosed, DanausError
from danaus.wire.address import Address
from danaus.wire.lifecycle import FROM_AGENT, TO_AGENT, ProcessExited, WatchProcess
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.secret import Secret
from danaus.wire.session import open_session

_OWNER_GRACE_S = 1.0
_LOST_LIMIT_S = 10.0


class Owners:
    """Watches the owners of this host's workers.

    Args:
        workers: The workers of this host.
        secret: The job's secret.
        tasks: Owner of the watching tasks.
    """

    def __init__(self, workers: WorkerTable, secret: Secret, tasks: OwnedTasks) -> None:
        self.own_address = ""
        self._workers = workers
        self._secret = secret
        self._tasks = tasks
        self._watched: set[str] = set()

    def watch(self, owner: str, owner_agent: str) -> None:
        """End what ``owner`` owns here once it is gone."""
        if owner not in self._watched:
            self._watched.add(owner)
            self._tasks.start(self._end_with_owner(owner, owner_agent), f"watching {owner}")

    async def _end_with_owner(self, owner: str, owner_agent: str) -> None:
        """End what ``owner`` owns here once its own agent says that it is gone (A-7)."""
        own = self._workers.get(owner)
        if own is not None:
            await own.ended.wait()
        elif owner_agent != self.own_address:
            await self._gone_elsewhere(owner, owner_agent)
        self._watched.discard(owner)
        owned = tuple(w.spec.process_id for w in self._workers if w.owner == owner)
        if owned:
            self._workers.note(
                f"{owner} is gone: ending the {len(owned)} processes that it owned here"
            )
            await self._workers.stop_all(owned, _OWNER_GRACE_S)

    async def _gone_elsewhere(self, owner: str, owner_agent: str) -> None:
        try:
            session = await open_session(
                Address.parse(owner_agent), self._secret, lost_limit_s=_LOST_LIMIT_S
            )
        except DanausError:
            return  # no agent, no owner
        try:
            session.send([TO_AGENT.encode(WatchProcess(owner))])
            async for parts in session:
                message = FROM_AGENT.decode(parts[0], session.peer)
                if isinstance(message, ProcessExited) and message.process_id == owner:
                    return
        except ChannelClosed:
            return
        finally:
            await session.close()
