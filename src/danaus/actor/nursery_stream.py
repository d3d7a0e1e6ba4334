"""How messages travel between a host agent and its nursery: each behind its length, in a stream.

A stream and no packets: every system has one between two processes.  Pure: what is to be sent and
what has come are bytes here, the sockets their owners'.

Invariant: a message is taken whole or not at all; what a death has torn nobody sees.
"""

from __future__ import annotations

import struct

from danaus.core.errors import FrameDamaged, MessageTooLarge

MAX_MESSAGE_BYTES = 16 << 20
READ_BYTES = 64 * 1024
_LENGTH = struct.Struct("<I")


def framed(message: bytes) -> bytes:
    """Return a message as it travels.

    Raises:
        MessageTooLarge: No message may be so long.
    """
    if len(message) > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(len(message), MAX_MESSAGE_BYTES, "bytes")
    return _LENGTH.pack(len(message)) + message


class Incoming:
    """Messages out of what has come so far.

    Args:
        peer: Whom to name in errors.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._rest = bytearray()

    def filled(self, data: bytes) -> list[bytes]:
        """Return the messages that are whole with these bytes, in order.

        Raises:
            FrameDamaged: There is no message of that length.
        """
        self._rest += data
        messages: list[bytes] = []
        at = 0
        while at + _LENGTH.size <= len(self._rest):
            (size,) = _LENGTH.unpack_from(self._rest, at)
            if size > MAX_MESSAGE_BYTES:
                raise FrameDamaged(self._peer, f"a message of {size} bytes")
            end = at + _LENGTH.size + size
            if end > len(self._rest):
                break
            messages.append(bytes(self._rest[at + _LENGTH.size : end]))
            at = end
        del self._rest[:at]
        return messages
