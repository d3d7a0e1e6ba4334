"""Throws bytes at everything that reads what a stranger may send, guided by coverage (W-2, W-3).

``python tools/fuzz.py [SECONDS]``, 60 by default; it does nothing where atheris is not installed.
What is not refused by the error that is made for it is a mistake, and ends this with a traceback.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
import types
from collections.abc import Callable, Iterator

import xxhash

from danaus.actor.agent_messages import FROM_AGENT, HELLO, TO_AGENT
from danaus.actor.holdings import lines_of, replay
from danaus.actor.process_messages import CODEC
from danaus.core.errors import AddressRefused, FrameDamaged, HandshakeRefused
from danaus.wire.address import Address
from danaus.wire.frame import FIXED_BYTES, FrameParser
from danaus.wire.handshake import Acceptor, Dialler
from danaus.wire.secret import Secret

MAX_FRAME_BYTES = 1 << 16
READERS = (
    "danaus.actor.holdings",
    "danaus.wire.address",
    "danaus.wire.codec",
    "danaus.wire.frame",
    "danaus.wire.handshake",
)
_SECRET = Secret(b"k" * 32)


def frames(data: bytes) -> None:
    """Read a stream of frames; bytes that look like heads are given the checksum that fits."""
    parser, rest = FrameParser("a stranger", max_frame_bytes=MAX_FRAME_BYTES), data
    try:
        while rest:
            head, rest = rest[:FIXED_BYTES], rest[FIXED_BYTES:]
            sealed = b"dnF1" + head[4:]
            for frame in parser.feed(sealed + struct.pack("<Q", xxhash.xxh3_64_intdigest(sealed))):
                assert sum(map(len, frame.parts)) <= MAX_FRAME_BYTES
            parser.feed(rest[:7])
            rest = rest[7:]
    except FrameDamaged:
        pass


def raw_frames(data: bytes) -> None:
    """Read a stream of frames as it is."""
    try:
        FrameParser("a stranger", max_frame_bytes=MAX_FRAME_BYTES).feed(data)
    except FrameDamaged:
        pass


def handshakes(data: bytes) -> None:
    """Be greeted, on either side, in two portions: nobody has proven anything."""
    for side, magic in ((Acceptor(_SECRET), b"danausD1"), (Dialler(_SECRET), b"danausA1")):
        cut = data[0] if data else 0
        try:
            side.feed(magic + data[1:cut])
            side.feed(data[cut:])
        except HandshakeRefused:
            pass
        assert not side.done


def messages(data: bytes) -> None:
    """Decode typed messages."""
    for codec in (TO_AGENT, FROM_AGENT, HELLO, CODEC):
        try:
            codec.decode(data)  # type: ignore[attr-defined]
        except FrameDamaged:
            pass


def addresses(data: bytes) -> None:
    """Parse an address, and what is written of it."""
    try:
        address = Address.parse(data.decode(errors="replace"))
    except AddressRefused:
        return
    assert Address.parse(str(address)) == address


def holdings(data: bytes) -> None:
    """Read what a controller has written down; what is understood says the same once more."""
    state = replay(data).state
    assert replay(lines_of(state)).state == state


TARGETS: tuple[Callable[[bytes], None], ...] = (
    frames,
    raw_frames,
    handshakes,
    messages,
    addresses,
    holdings,
)


def one(data: bytes) -> None:
    """Give bytes to the target that their first one chooses."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def _functions() -> Iterator[types.FunctionType]:
    """Yield what reads; all that is imported besides would take minutes to instrument."""
    for name in READERS:
        module = sys.modules[name]
        for each in vars(module).values():
            inside = vars(each).values() if isinstance(each, type) else (each,)
            for function in inside:
                if isinstance(function, types.FunctionType) and function.__module__ == name:
                    yield function


def main() -> None:
    """Fuzz for as many seconds as the only argument says."""
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: parsers are not fuzzed by coverage")
        return
    atheris = importlib.import_module("atheris")
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for function in _functions():
        atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
