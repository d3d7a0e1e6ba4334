"""The quorum service's word with host agents that do not let it in."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from danaus.quorum.agents import HostAgents
from danaus.wire.secret import Secret

from .quorum_parts import LIMIT_S, FakeAgent


class _Heard(logging.Handler):
    """Keeps the levels of what is said, and tells when that is enough."""

    def __init__(self, enough: int) -> None:
        super().__init__(logging.INFO)
        self.levels: list[int] = []
        self._enough, self.is_enough = enough, asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "not reached" in record.getMessage():
            self.levels.append(record.levelno)
        if len(self.levels) >= self._enough:
            self.is_enough.set()


def test_an_agent_that_refuses_the_secret_is_warned_of_once(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/agent"

    async def watch() -> list[int]:
        log, heard = logging.getLogger("danaus.quorum"), _Heard(enough=3)
        agents = HostAgents(
            Secret.generate(),
            on_exit=lambda _address, _exited: None,
            on_positions=lambda _address, _seen: None,
            on_gone=lambda _address: None,
        )
        level = log.level
        log.addHandler(heard)
        log.setLevel(logging.INFO)
        try:
            agents.watch(address, "host/a/0#0")
            async with asyncio.timeout(LIMIT_S):
                await heard.is_enough.wait()
        finally:
            log.removeHandler(heard)
            log.setLevel(level)
            await agents.close()
        return heard.levels

    with FakeAgent(address, Secret.generate()):
        assert asyncio.run(watch()) == [logging.WARNING, logging.INFO, logging.INFO]
