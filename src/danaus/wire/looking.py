"""Whether anybody listens at an address: what a machine's kernel says of a process that is gone.

Nothing is said to whoever listens; that it is who we think is proven by a handshake only.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from danaus.wire.address import Address

LOOK_LIMIT_S = 2.0

Found = Literal["gone", "there", "unknown"]


async def look_for(address: Address, limit_s: float = LOOK_LIMIT_S) -> Found:
    """Return ``gone`` where the machine is reached and refuses, ``unknown`` where it is not.

    Args:
        address: Where the process listened.
        limit_s: How long to wait for an answer of its machine.
    """
    dial = (
        asyncio.open_unix_connection(address.path)
        if address.scheme == "unix"
        else asyncio.open_connection(address.host, address.port)
    )
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await dial
    except (ConnectionRefusedError, FileNotFoundError):
        return "gone"
    except (OSError, TimeoutError):
        return "unknown"
    writer.close()
    return "there"
