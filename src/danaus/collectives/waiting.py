"""How a member waits for its peers: awake for a moment, then asleep.

Owns ``wait_for_events``.  Waking a processor that has gone idle can take a millisecond on a virtual
machine, several times what an exchange itself takes.
"""

from __future__ import annotations

import math
import os
import select

from danaus.core.clock import Deadline

_AWAKE_S = 0.001
_TAKEN_S = 50e-6
"""A yield that takes longer has let somebody else run."""


def wait_for_events(poller: select.poll, deadline: Deadline) -> list[tuple[int, int]]:
    """Return what a poll tells; nothing, once the deadline has passed."""
    return _stay_awake(poller, deadline) or poller.poll(math.ceil(deadline.remaining_s() * 1000.0))


def _stay_awake(poller: select.poll, deadline: Deadline) -> list[tuple[int, int]]:
    """Look again and again for a moment, as long as nobody else wants this processor."""
    clock = deadline.clock
    until = min(clock.now() + _AWAKE_S, deadline.at)
    while not (events := poller.poll(0)):
        yielding = clock.now()
        if yielding >= until:
            break
        os.sched_yield()
        if clock.now() - yielding > _TAKEN_S:
            break
    return events
