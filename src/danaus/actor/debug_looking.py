"""Looking at breakpoints from elsewhere: who stands there, and being attached to one.

Owns what the program's own debug controller and ``danaus debug`` have in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from danaus.actor import debug_messages as talk
from danaus.actor.agent_talk import AgentTalk, talk_to_agent
from danaus.core.errors import ConfigError, DeadlinePassed
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_ANSWER_LIMIT_S = 5.0

Door = tuple[Address, Secret]
"""Where a host agent listens, and what opens it."""


async def attach(agent: AgentTalk, number: int, *, take: bool = False) -> talk.Attached:
    """Attach to a breakpoint of an agent's host; return what was said there.

    Args:
        agent: Of the host; what it says from now on is of this breakpoint.
        number: The breakpoint's.
        take: Away from who is attached now.

    Raises:
        ConfigError: Nobody stands there any more, or somebody else is attached to it.
    """
    agent.say(talk.AttachToBreakpoint(number, take))
    while True:
        told = await agent.hear()
        if isinstance(told, talk.Attached):
            return told
        if isinstance(told, talk.NotAttached):
            raise ConfigError(f"breakpoint {number} of that host", told.why)


async def standing_at(door: Door) -> tuple[talk.Standing, ...]:
    """Return who stands at a breakpoint on a host.

    Raises:
        DanausError: Its agent does not answer.
    """
    try:
        async with asyncio.timeout(_ANSWER_LIMIT_S), talk_to_agent(*door) as agent:
            agent.say(talk.WatchBreakpoints())
            return (await agent.hear_of(talk.BreakpointsSeen)).standing
    except TimeoutError as error:
        raise DeadlinePassed(f"the agent at {door[0]} to answer", _ANSWER_LIMIT_S) from error


async def wait_for_first(doors: Sequence[Door], limit_s: float) -> None:
    """Wait until somebody stands at a breakpoint on one of these hosts, or for ``limit_s``."""

    async def wait_at(door: Door) -> None:
        async with talk_to_agent(*door) as agent:
            agent.say(talk.WatchBreakpoints())
            while not (await agent.hear_of(talk.BreakpointsSeen)).standing:
                pass

    waiting = {asyncio.ensure_future(wait_at(door)) for door in doors}
    rest, until = waiting, asyncio.get_running_loop().time() + limit_s
    try:
        # A host that does not answer is no reason to look again at the others.
        while rest and (left_s := until - asyncio.get_running_loop().time()) > 0:
            done, rest = await asyncio.wait(
                rest, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if any(each.exception() is None for each in done):
                return
        await asyncio.sleep(max(0.0, until - asyncio.get_running_loop().time()))
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
