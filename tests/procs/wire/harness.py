"""Names that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from danaus.wire.channel import Channel

Run = Callable[[Coroutine[Any, Any, Any]], Any]
ChannelPair = Callable[[], AbstractAsyncContextManager[tuple[Channel, Channel]]]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
