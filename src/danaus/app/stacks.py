"""What every rank of a run is at, from the agents of its hosts: the run itself is not asked.

Owns ``stacks_of``, for ``danaus stacks``.  It works while the controller hangs or is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from danaus.actor.agent_messages import ProcessStacks, StacksTaken, TakeStacks
from danaus.actor.agent_talk import talk_to_agent
from danaus.app.run_folder import RunFolder
from danaus.core.errors import DanausError
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class HostStacks:
    """What the workers of one host are at.

    Args:
        host: Its name.
        processes: In the order in which they were started; none where ``why`` says why.
        why: Nobody answered there.
    """

    host: str
    processes: tuple[ProcessStacks, ...] = ()
    why: str = ""


def stacks_of(folder: RunFolder) -> list[HostStacks]:
    """Return what every worker of a run is at, by host; nobody is disturbed by it.

    Args:
        folder: The run's.
    """
    agents: dict[str, str] = folder.addresses().get("agents", {})
    return asyncio.run(_ask_all(agents, folder.secret()))


async def _ask_all(agents: dict[str, str], secret: Secret) -> list[HostStacks]:
    asked = [_ask(host, Address.parse(address), secret) for host, address in agents.items()]
    return list(await asyncio.gather(*asked))


async def _ask(host: str, agent: Address, secret: Secret) -> HostStacks:
    try:
        async with asyncio.timeout(_LIMIT_S), talk_to_agent(agent, secret) as talk:
            talk.say(TakeStacks())
            return HostStacks(host, (await talk.hear_of(StacksTaken)).processes)
    except DanausError as error:
        return HostStacks(host, why=str(error))
    except TimeoutError:
        return HostStacks(host, why=f"its agent did not answer within {_LIMIT_S:g} s")
