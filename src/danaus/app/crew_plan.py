"""Who is to train, and where: what to start and what to drain.

Owns the decisions behind ``danaus scale``, ``danaus drain`` and ``danaus roll``, and the choice of
a host for a replica that cannot stay on its own.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence


def next_host(
    own: int,
    load: Sequence[int | None],
    *,
    away_s: float | None,
    wait_s: float | None,
    leaves: bool,
) -> int:
    """Return the host on which a replica is to be tried next (H-4).

    Args:
        own: Its own.
        load: Of each host, how many other replicas live there; None: it cannot be used.
        away_s: Seconds for which its own is lost; None: it is not.
        wait_s: Seconds after which it starts on any other; None: it waits for its own.
        leaves: Its own was asked to end, and nobody here starts it again.
    """
    usable = {host: num for host, num in enumerate(load) if num is not None}
    if not usable:
        return own
    emptiest = min(usable, key=lambda host: usable[host])
    if leaves and usable[emptiest] == 0:
        return emptiest  # a spare: its own is not coming back by itself
    if wait_s is not None and away_s is not None and away_s >= wait_s:
        return emptiest
    return own
