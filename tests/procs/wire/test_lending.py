"""Large buffers between processes of one host: in memory that nobody has to clean up (W-1)."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest
from tests.procs.wire.harness import Run

from danaus.core.errors import FrameDamaged
from danaus.wire.address import Address
from danaus.wire.codec import own
from danaus.wire.lending import LEND_BYTES, Borrower, Lender, Loan, tabled
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session, serve_sessions

SECRET = Secret.generate()
LARGE = 3 * LEND_BYTES


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def pair(path: Path):
    """Return both ends of a session over a socket file, and their listener."""
    accepted: asyncio.Queue[Session] = asyncio.Queue()
    listener = await serve_sessions(Address.unix(path / "s"), SECRET, accepted.put_nowait)
    dialled = await open_session(listener.address, SECRET)
    return dialled, await accepted.get(), listener


def test_a_large_part_arrives_writable_and_its_owner_may_write_to_it_at_once(
    run: Run, short_dir: Path
) -> None:
    async def work() -> None:
        here, there, listener = await pair(short_dir)
        large = bytearray(b"a" * LARGE)
        parts = here.lend([b"head", large, b"tail"])
        assert [type(part) for part in parts] == [bytes, Loan, bytes]
        here.send(parts)
        large[:] = b"b" * LARGE
        head, got, tail = await there.receive()
        assert (bytes(head), bytes(got), bytes(tail)) == (b"head", b"a" * LARGE, b"tail")
        got[0:1] = b"c"
        assert bytes(got[:2]) == b"ca"
        await here.close()
        assert bytes(got[:2]) == b"ca"  # what was received outlives the session
        await listener.close()

    run(work())


def test_a_segment_goes_back_and_is_lent_again_and_nothing_is_left(
    run: Run, short_dir: Path
) -> None:
    async def work() -> None:
        before = num_descriptors()
        here, there, listener = await pair(short_dir)
        open_ = num_descriptors()
        for number in range(20):
            here.send(here.lend([b"%d" % number + b"x" * LARGE]))
            (got,) = await there.receive()
            assert bytes(got[:2]) == (b"%dx" % number)[:2]
            del got
            gc.collect()
            await there.drain(5.0)  # it has said that it gives it back
        assert num_descriptors() <= open_ + 3 * 2  # the memory, and both maps, of two at most
        held = []
        for _ in range(80):  # more than may be lent: the rest goes by the socket
            here.send(here.lend([b"x" * LARGE]))
            held.append(await there.receive())
        assert all(bytes(part[:1]) == b"x" and len(part) == LARGE for (part,) in held)
        held.clear()
        gc.collect()
        await here.close()
        await listener.close()
        gc.collect()
        assert num_descriptors() <= before

    run(work())


def test_what_was_lent_arrives_over_a_cut_connection_too(run: Run, short_dir: Path) -> None:
    async def work() -> None:
        here, there, listener = await pair(short_dir)
        for number in range(6):
            here.send(here.lend([b"%d" % number + b"x" * LARGE, b"y" * LARGE]))
            here.drop_connection("a test")
        for number in range(6):
            first, second = await there.receive()
            assert (bytes(first[:2]), len(first), len(second)) == (
                b"%dx" % number, LARGE + 1, LARGE,
            )  # fmt: skip
        await here.close()
        await listener.close()

    run(work())


def test_nothing_is_lent_over_tcp(run: Run) -> None:
    async def work() -> None:
        listener = await serve_sessions(Address.tcp("127.0.0.1", 0), SECRET, lambda _: None)
        session = await open_session(listener.address, SECRET)
        parts = [b"x" * LARGE]
        assert session.lend(parts) is parts
        await session.close()
        await listener.close()

    run(work())


def test_nothing_is_lent_where_memory_has_no_seals(
    run: Run, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lender, sent, fd = lent_once()
    monkeypatch.delattr(os, "memfd_create")

    async def work() -> None:
        here, there, listener = await pair(short_dir)
        here.send(here.lend([b"head", b"x" * LARGE]))
        head, got = await there.receive()
        assert (bytes(head), bytes(got)) == (b"head", b"x" * LARGE)
        await here.close()
        await listener.close()

    run(work())
    with pytest.raises(FrameDamaged, match="could shrink"):
        Borrower("peer", lambda _: None).open([bytearray(p) for p in sent], fd, is_news=True)
    lender.close()


def lent_once():
    """Return a lender, what it sends for one large part, and its descriptor, to give away."""
    lender = Lender()
    _, sent, fds = tabled(lender.lend([b"x" * LARGE]))
    return lender, sent, lambda: os.dup(fds[0])


def test_a_liar_is_refused():
    lender, sent, fd = lent_once()
    borrower = Borrower("peer", lambda _: None)
    with pytest.raises(FrameDamaged, match="no table"):
        borrower.open([bytearray(b"\xff")], fd, is_news=True)
    with pytest.raises(FrameDamaged, match="has not lent"):
        Borrower("peer", lambda _: None).open(
            [bytearray(part).replace(b"\xce\x00\x20\x00\x00", b"\x00") for part in sent],
            fd,
            is_news=True,
        )
    soft = os.memfd_create("soft")
    os.ftruncate(soft, 2 << 20)
    with pytest.raises(FrameDamaged, match="could shrink"):
        borrower.open([bytearray(part) for part in sent], lambda: soft, is_news=True)
    assert own(lender.lend([b"small"])) == [b"small"]
    lender.close()


def test_a_repetition_only_takes_its_descriptors():
    lender, sent, fd = lent_once()
    given_back = []
    borrower = Borrower("peer", given_back.append)
    parts = [bytearray(part) for part in sent]
    assert borrower.open(parts, fd, is_news=False) == []
    (got,) = borrower.open(parts, fd, is_news=True)
    assert bytes(got[:3]) == b"xxx"
    del got
    gc.collect()
    assert given_back == [1]
    assert borrower.keep(1)
    lender.close()
