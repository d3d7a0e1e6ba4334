"""``danaus debug``: attach to an actor that stands at a breakpoint, from another terminal."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from danaus.actor.agent_talk import talk_to_agent
from danaus.actor.debug_looking import standing_at, wait_for_first
from danaus.actor.debug_messages import Standing
from danaus.app.programs import AgentAt, find_agents
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.cli.debug_terminal import Keyboard, attend
from danaus.core.errors import ConfigError, DanausError

_NEXT_LIMIT_S = 0.3


@dataclass(frozen=True, kw_only=True)
class DebugCommand:
    """Attach to an actor that stands at a breakpoint(); its program goes on afterwards.

    Without TARGET all programs and runs of yours on this machine are looked at. What is typed goes
    to pdb, which runs where the actor does: c lets it go on, q ends its endpoint (BdbQuit). Ctrl-D
    and Ctrl-C leave it standing there, for whoever attaches next.

    Args:
        target: A run's folder, or the pid of a program or of one of its workers.
        at: Which breakpoint, by the name that it is listed with, as in host0.1.
        take: Take it away from whoever is attached to it now.
        wait_s: How many seconds to wait for a breakpoint, should nobody stand at one; after c for
            the next.
    """

    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN|PID]")] = ""
    at: str = ""
    take: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True)
class _Found:
    agent: AgentAt
    standing: Standing

    @property
    def name(self) -> str:
        return f"{self.agent.host}.{self.standing.number}"


def run(arguments: list[str]) -> int:
    """Debug; return the exit code: 1 if nobody stands at a breakpoint, or it came to a bad end."""
    if wants_help(arguments):
        return show_help(DebugCommand, "debug")
    given = read(arguments, DebugCommand, "debug")
    asked = build(DebugCommand, given, ("target",) if given.values else (), "debug")
    if not asked.wait_s >= 0:
        raise ConfigError(f"--wait-s is {asked.wait_s:g}", "it must not be below 0")
    with Keyboard() as keyboard:
        try:
            return asyncio.run(_debug(asked, keyboard))
        except KeyboardInterrupt:
            print("\nleft standing where it is, if it is at a breakpoint")
            return 130


async def _debug(asked: DebugCommand, keyboard: Keyboard) -> int:
    agents, wait_s, code = find_agents(asked.target), asked.wait_s, 1
    while True:
        found = await _look(agents, wait_s)
        if not found and code:
            print(f"nobody stands at a breakpoint on {len(agents)} hosts")
        if not found:
            return code
        chosen = await _choose(found, asked, keyboard)
        if chosen is None:
            return 0
        standing = chosen.standing
        async with talk_to_agent(chosen.agent.address, chosen.agent.secret) as talk:
            why = await attend(talk, standing.number, take=asked.take, keyboard=keyboard)
        if why:
            print(f"\ndanaus: {standing.actor} at {standing.where}: {why}", file=sys.stderr)
            return 1
        if keyboard.is_over:
            print(f"\nleft {standing.actor} standing at {standing.where}: danaus debug")
            return 0
        print(f"{standing.actor} goes on")
        code, wait_s = 0, max(_NEXT_LIMIT_S, asked.wait_s)
        if asked.at:
            return 0


async def _choose(found: list[_Found], asked: DebugCommand, keyboard: Keyboard) -> _Found | None:
    """Return the breakpoint that is meant; None: they were to be listed only."""
    if asked.at:
        meant = [each for each in found if each.name == asked.at]
        if len(meant) != 1:
            raise ConfigError(
                f"{len(meant)} breakpoints are called {asked.at}",
                f"one of {', '.join(each.name for each in found)}",
                "name the program too, by its pid or folder" if meant else "",
            )
        return meant[0]
    for n, each in enumerate(found, 1):
        print(_line(n, each), flush=True)
    if not sys.stdin.isatty() and len(found) > 1:
        return None
    while len(found) > 1:
        said = await keyboard.line(f"attach to which, 1 to {len(found)}? (empty: to none) ")
        if not said:
            return None
        if said.isdecimal() and 1 <= int(said) <= len(found):
            return found[int(said) - 1]
    return found[0]


def _line(n: int, found: _Found) -> str:
    at = found.standing
    attached = ", somebody is attached" if at.attached else ""
    return (
        f"{n:3}  {found.name:<10} {at.actor} in {at.process_id} of {found.agent.program}, "
        f"{at.where}, for {at.since_s:.0f} s{attached}"
    )


async def _look(agents: list[AgentAt], wait_s: float) -> list[_Found]:
    """Return who stands at a breakpoint; the first is waited for."""
    doors = [(agent.address, agent.secret) for agent in agents]
    found = await _standing(agents)
    if not found and wait_s > 0:
        await wait_for_first(doors, wait_s)
        found = await _standing(agents)
    return found


async def _standing(agents: list[AgentAt]) -> list[_Found]:
    asked = (standing_at((agent.address, agent.secret)) for agent in agents)
    found: list[_Found] = []
    for agent, seen in zip(
        agents, await asyncio.gather(*asked, return_exceptions=True), strict=True
    ):
        if isinstance(seen, DanausError):
            print(f"danaus: {agent.host} of {agent.program}: {seen}", file=sys.stderr)
        elif isinstance(seen, BaseException):
            raise seen
        else:
            found += [_Found(agent, standing) for standing in seen]
    return found
