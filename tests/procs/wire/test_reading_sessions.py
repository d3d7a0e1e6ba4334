"""What a session brings, on whichever thread reads it (A-3, W-3)."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.procs.wire.harness import Relay, Run
from tests.procs.wire.readers import LIMIT_S, Thread, is_led, the_reading

from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)


@pytest.mark.parametrize("kind", ["unix", "tcp", "tls"])
def test_a_sessions_messages_come_on_the_thread_that_waits_over_cuts_too(
    run: Run, kind: str, short_dir, request: pytest.FixtureRequest
) -> None:
    if kind == "tls":
        request.getfixturevalue("far_loopback")
    where = Address.unix(str(short_dir / "s")) if kind == "unix" else LOOPBACK

    async def work() -> None:
        reading, here = the_reading(), threading.get_ident()
        sessions: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(where, SECRET, sessions.put_nowait)
        num, size = 300, 3_000
        async with Relay(listener.address, [200_000, 400_000], abrupt=True) as relay:
            # A relay is TCP's: over a unix socket nothing is cut.
            dialled = listener.address if kind == "unix" else relay.address
            mine = await open_session(dialled, SECRET, lost_limit_s=LIMIT_S)
            theirs = await sessions.get()
            threads: set[int] = set()
            numbers: list[int] = []

            def take(parts: list[bytearray]) -> None:
                threads.add(threading.get_ident())
                numbers.append(int(parts[0][:6]))
                reading.ring()

            mine.on_message = take
            mine.share_reading(reading)
            assert (mine.reading is reading) == (kind != "tls")
            leads = Thread(lambda: reading.lead(lambda: len(numbers) == num, limit_s=LIMIT_S))
            await is_led(reading)
            for number in range(num):
                theirs.send([b"%06d" % number + bytes(size)])
            await leads.done()
            assert numbers == list(range(num))
            # What comes first over a new connection its loop may have read already.
            allowed = {"unix": {leads.ident}, "tcp": {here, leads.ident}, "tls": {here}}[kind]
            assert threads <= allowed
            assert kind == "tls" or leads.ident in threads
            await mine.close(5.0)
        await listener.close()
        reading.close()

    run(work())


def test_a_damaged_frame_ends_the_session_whoever_reads_it(run: Run) -> None:
    async def work() -> None:
        reading = the_reading()
        sessions: asyncio.Queue[Session] = asyncio.Queue()
        listener = await serve_sessions(LOOPBACK, SECRET, sessions.put_nowait)
        mine = await open_session(listener.address, SECRET)
        theirs = await sessions.get()
        mine.on_message = lambda _: None
        mine.share_reading(reading)
        closed = threading.Event()
        mine.closed.add_done_callback(lambda _: (closed.set(), reading.ring()))
        leads = Thread(lambda: reading.lead(closed.is_set, limit_s=LIMIT_S))
        await is_led(reading)
        assert theirs._channel is not None
        theirs._channel._transport._stream.sock.send(b"no frame" * 100)  # type: ignore[attr-defined]
        reason = await mine.closed
        assert "frame" in reason.why
        await leads.done()
        theirs.end("the test is over")
        await listener.close()
        reading.close()

    run(work())
