"""A process that nobody looks after is looked for where it listened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from danaus.quorum.lookout import Lookout
from danaus.quorum.messages import MemberId, Seat

WHO = MemberId("a", 0, 0)
LIMIT_S = 20.0


class Looking:
    """A listener, and who looks for it.  The listener ends once it was found."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_back = path, False
        self.found, self.gone = asyncio.Event(), asyncio.Event()
        self.num_gone = 0
        self.lookout = Lookout(is_back=lambda _: self.is_back, on_gone=self._gone)

    def _gone(self, member: MemberId) -> None:
        assert member == WHO
        self.num_gone += 1
        self.gone.set()

    async def run(self, *, comes_back: bool) -> None:
        server = await asyncio.start_unix_server(self._welcome, self.path)
        seat = Seat(WHO, 1, f"unix:{self.path}")
        async with asyncio.timeout(LIMIT_S), server:
            self.lookout.look(seat)
            self.lookout.look(seat)  # once more changes nothing
            await self.found.wait()
            assert not self.num_gone, "somebody listens"
            self.is_back = comes_back
            server.close()
            self.path.unlink()
            if not comes_back:
                await self.gone.wait()
        await self.lookout.close()

    async def _welcome(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self.found.set()


@pytest.mark.parametrize("comes_back", [False, True])
def test_it_is_gone_once_its_machine_refuses_unless_it_is_back(
    tmp_path_factory: pytest.TempPathFactory, comes_back: bool
) -> None:
    looking = Looking(tmp_path_factory.mktemp("l") / "s")
    asyncio.run(looking.run(comes_back=comes_back))
    assert looking.num_gone == (not comes_back)
