"""A member's line to a service that does not behave."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from danaus.quorum import client as client_room
from danaus.quorum.client import QuorumClient
from danaus.quorum.messages import MemberId, Seat
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

from .quorum_parts import LIMIT_S


def test_a_service_that_hangs_up_at_once_is_dialled_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, secret = f"unix:{tmp_path}/s", Secret.generate()
    dialled: list[float] = []
    num_sessions = 4

    async def open_noted(*arguments: object, **options: float) -> Session:
        dialled.append(time.monotonic())
        return await open_session(*arguments, **options)  # type: ignore[arg-type]

    async def hang_up() -> None:
        enough, count = asyncio.Event(), itertools.count(1)

        def end(session: Session) -> None:
            session.end("not now")
            if next(count) == num_sessions:
                enough.set()

        listener = await serve_sessions(Address.parse(address), secret, end)
        with QuorumClient(address, secret, Seat(MemberId("a", 0, 0), 1, "unix:/a")):
            async with asyncio.timeout(LIMIT_S):
                await enough.wait()
        await listener.close()

    monkeypatch.setattr(client_room, "open_session", open_noted)
    asyncio.run(hang_up())
    # How much longer it takes is up to the machine; how much shorter is not.
    gaps_s = [after - before for before, after in itertools.pairwise(dialled[:num_sessions])]
    assert min(gaps_s) > 0.99 * client_room._PAUSE_S
