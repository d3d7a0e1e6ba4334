"""Ending a run that has lost its controller: what lives of it is found and told to end (P-4).

Owns ``end_what_is_left``, for ``danaus stop``.  A run with a controller is ended by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from danaus.actor.agent_messages import ShutDown
from danaus.actor.agent_talk import talk_to_agent
from danaus.actor.found_process import FoundProcess
from danaus.actor.holdings import HostHeld
from danaus.actor.holdings_log import read_holdings, remove_holdings
from danaus.actor.procfs import kill_exactly
from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.app.run_lock import RunLock
from danaus.app.watchdog import WATCHDOG_LOCK
from danaus.core.errors import DanausError
from danaus.core.journal import Journal
from danaus.job.local import HOLDINGS
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_END_LIMIT_S = 10.0


def end_what_is_left(folder: RunFolder, reason: str, *, grace_s: float) -> list[str]:
    """End the watchdog, the hosts and the quorum service of a run; return what was found, in words.

    Args:
        folder: The run's, held by this process: no controller is alive.
        reason: Who wants it, for the journal.
        grace_s: Seconds that each worker has to end by itself.
    """
    found = []
    if kill_exactly(*RunLock(folder.path, WATCHDOG_LOCK).holder()):
        found.append("its watchdog")
    record = folder.control / HOLDINGS
    hosts = read_holdings(record).hosts.values()
    found += asyncio.run(_end_hosts(hosts, folder.secret(), grace_s))
    known = folder.addresses()
    pid, started = known.get("quorum_pid"), known.get("quorum_started")
    if isinstance(pid, int) and isinstance(started, int) and kill_exactly(pid, started):
        found.append("the quorum service")
    remove_holdings(record)
    if found:
        with Journal(folder.journal_path) as journal:
            journal.record(Event.RUN_STOPPED, reason=f"{reason}; no controller was alive")
    return found


async def _end_hosts(hosts: Iterable[HostHeld], secret: Secret, grace_s: float) -> list[str]:
    ended = await asyncio.gather(*(_end_host(host, secret, grace_s) for host in hosts))
    return [name for name in ended if name]


async def _end_host(host: HostHeld, secret: Secret, grace_s: float) -> str:
    """Have a host's agent end, with all workers; kill one of this machine that does not."""
    agent = FoundProcess.find(host.agent_pid, host.agent_started)
    try:
        address = Address.parse(host.agent_address)
        async with asyncio.timeout(grace_s + _END_LIMIT_S), talk_to_agent(address, secret) as talk:
            talk.say(ShutDown(grace_s))
            await talk.until_it_ends()
    except (DanausError, TimeoutError):
        if agent is None:
            return ""
        agent.kill()
    finally:
        if agent is not None:
            agent.close()
    return host.name
