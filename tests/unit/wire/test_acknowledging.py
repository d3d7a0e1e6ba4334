"""When acknowledgements go out in frames of their own, on a loop whose time needs no waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from danaus.wire.acknowledging import ACK_DELAY_S, Acknowledging
from danaus.wire.resume import ACK_EVERY_MESSAGES, Window


class _Hurried(selectors.DefaultSelector):
    """Does not wait: it says that the time has passed."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now_s += timeout or 0.0
        return super().select(0)


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    selector = _Hurried()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


async def _passed(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


class _End:
    """One end that receives; ``sent`` has the time of each acknowledgement by itself."""

    def __init__(self) -> None:
        self.window = Window()
        self.sent: list[float] = []
        self.acks = Acknowledging(self.window, self._acknowledge)

    def _acknowledge(self) -> None:
        self.window.take_ack()
        self.sent.append(round(asyncio.get_running_loop().time(), 6))

    def receive(self) -> None:
        self.window.arrived(self.window.received + 1, 1)
        self.acks.received()


def test_what_nothing_answers_is_acknowledged_soon() -> None:
    async def main() -> None:
        end = _End()
        end.receive()
        await _passed(0.5 * ACK_DELAY_S)
        end.receive()
        await _passed(10 * ACK_DELAY_S)
        assert end.sent == [ACK_DELAY_S]
        end.receive()
        await _passed(10 * ACK_DELAY_S)
        assert len(end.sent) == 2

    _run(main)


def test_where_answers_go_out_no_acknowledgement_does_until_they_end() -> None:
    async def main() -> None:
        end = _End()
        for _ in range(100):
            end.receive()
            await _passed(0.3 * ACK_DELAY_S)
            assert end.window.take_ack() == end.window.received  # an answer takes it along
            await _passed(0.1 * ACK_DELAY_S)
        assert not end.sent
        end.receive()
        since = asyncio.get_running_loop().time()
        await _passed(10 * ACK_DELAY_S)
        (at,) = end.sent
        assert at - since <= 2 * ACK_DELAY_S

    _run(main)


def test_many_messages_are_acknowledged_at_once() -> None:
    async def main() -> None:
        end = _End()
        for _ in range(ACK_EVERY_MESSAGES):
            end.receive()
        assert end.sent == [0.0]
        await _passed(10 * ACK_DELAY_S)
        assert end.sent == [0.0]

    _run(main)


def test_nothing_goes_out_after_the_end() -> None:
    async def main() -> None:
        end = _End()
        end.receive()
        end.acks.close()
        await _passed(10 * ACK_DELAY_S)
        assert not end.sent

    _run(main)
