"""The keeper of the quorum service: it ends when it is told to, whatever it is just doing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from danaus.app.run_folder import RunFolder
from danaus.app.service_keeper import ServiceKeeper
from danaus.app.settings import RunConfig
from danaus.core.journal import Journal

LIMIT_S = 20.0


def test_a_stop_while_the_service_is_being_started_ends_it(tmp_path: Path) -> None:
    async def stopped_at_once(keeper: ServiceKeeper) -> None:
        async with asyncio.timeout(LIMIT_S):
            running = asyncio.ensure_future(keeper.run())
            await asyncio.sleep(0)  # it begins; there is no process yet
            assert keeper.pid is None
            await keeper.stop()
            await running

    settings = RunConfig(run_dir=tmp_path / "run")
    with (
        RunFolder.create(tmp_path / "run", settings) as folder,
        Journal(folder.journal_path) as journal,
    ):
        keeper = ServiceKeeper(folder, settings, journal, resume=False, heal=True)
        asyncio.run(stopped_at_once(keeper))
        assert keeper.pid is None
