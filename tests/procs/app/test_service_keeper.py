"""The keeper of the quorum service: what it does when it cannot, and when it shall not any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.app import service_keeper
from danaus.app.run_folder import RunFolder
from danaus.app.service_keeper import ServiceKeeper
from danaus.app.settings import RestartConfig, RunConfig
from danaus.core.journal import Journal
from danaus.testing.watching import RunWatch

LIMIT_S = 20.0


@pytest.fixture
def start_limit_s() -> float:
    """How long the first service may take to answer."""
    return service_keeper._START_LIMIT_S


@pytest.fixture
def keeper(
    tmp_path: Path, start_limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceKeeper]:
    monkeypatch.setattr(service_keeper, "_START_LIMIT_S", start_limit_s)
    settings = RunConfig(run_dir=tmp_path / "run", restart=RestartConfig(intensity=100))
    with (
        RunFolder.create(tmp_path / "run", settings) as folder,
        Journal(folder.journal_path) as journal,
    ):
        yield ServiceKeeper(folder, settings, journal, resume=False, heal=True)


def test_a_stop_while_the_service_is_being_started_ends_it(keeper: ServiceKeeper) -> None:
    async def stopped_at_once() -> None:
        async with asyncio.timeout(LIMIT_S):
            running = asyncio.ensure_future(keeper.run())
            await asyncio.sleep(0)  # it begins; there is no process yet
            assert keeper.pid is None
            await keeper.stop()
            await running

    asyncio.run(stopped_at_once())
    assert keeper.pid is None


def test_a_service_that_cannot_be_started_is_tried_again(
    keeper: ServiceKeeper, tmp_path: Path
) -> None:
    folder = RunFolder.open(tmp_path / "run")
    watch = RunWatch(folder)
    log = folder.log_path("quorum")
    log.mkdir()

    async def started_in_the_end() -> None:
        async with asyncio.timeout(LIMIT_S):
            running = asyncio.ensure_future(keeper.run())
            await asyncio.to_thread(watch.until, "a try", lambda: watch.events("service_exited"))
            log.rmdir()
            await asyncio.to_thread(watch.until, "a start", lambda: watch.events("service_started"))
            await keeper.stop()
            await running

    asyncio.run(started_in_the_end())
    assert "cannot be started" in watch.events("service_exited")[0]["reason"]


@pytest.mark.parametrize("start_limit_s", [0.03])
def test_a_service_that_is_too_slow_to_start_gets_more_time_each_time(
    keeper: ServiceKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = RunWatch(RunFolder.open(tmp_path / "run"))
    monkeypatch.setattr(service_keeper, "_RESTART_LIMIT_S", 0.05)

    async def listens_in_the_end() -> None:
        async with asyncio.timeout(2 * LIMIT_S):
            running = asyncio.ensure_future(keeper.run())
            listens = lambda: watch.events("quorum_listening")  # noqa: E731
            await asyncio.to_thread(watch.until, "one that listens", listens, LIMIT_S)
            await keeper.stop()
            await running

    asyncio.run(listens_in_the_end())
    assert watch.events("service_silent")
