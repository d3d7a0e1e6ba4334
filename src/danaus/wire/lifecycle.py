"""What is said with a host agent by those who watch or fence its processes.

Owns these structs and their codecs only: the agent is the actor room's, its watchers are in the
quorum room and above.  They meet here, below both.

A watcher opens an authenticated session with the agent and says ``WatchProcess`` for each process
it cares for.  The agent answers with one ``ProcessExited`` per watched process, at once if it is
gone already or never was, and streams ``PositionsSeen`` about ten times a second.
"""

from __future__ import annotations

import msgspec

from danaus.wire.codec import Codec


class WatchProcess(msgspec.Struct, frozen=True, tag="watch_process"):
    """Tell me of this process: its positions and its end."""

    process_id: str


class KillProcess(msgspec.Struct, frozen=True, tag="kill_process"):
    """Kill this process now (SIGKILL); its end is reported with ``reason``.

    With ``save_stacks`` its stacks are written to its log first, as far as it can still do that.
    """

    process_id: str
    reason: str
    save_stacks: bool = False


class ProcessExited(msgspec.Struct, frozen=True, tag="process_exited"):
    """This process is gone: confirmed by the agent of its host.

    One of ``exit_code`` and ``signal`` (a name, as in ``SIGKILL``) is set, neither when the agent
    has no such process (``reason`` says so then).
    """

    process_id: str
    exit_code: int | None = None
    signal: str | None = None
    log_tail: tuple[str, ...] = ()
    reason: str = ""


class ProcessPosition(msgspec.Struct, frozen=True):
    """Where one process is; ``phase`` is a ``position.Phase``, ``still_s`` how long it has been
    there, ``waiting`` that it stands there for others, ``for_siblings`` that it does for ranks of
    its own replica."""

    process_id: str
    step: int
    phase: int
    collective: int
    waiting: bool
    still_s: float
    for_siblings: bool = False


class PositionsSeen(msgspec.Struct, frozen=True, tag="positions_seen"):
    """The positions of all watched processes of one host, read at one moment."""

    positions: tuple[ProcessPosition, ...]


ToAgent = WatchProcess | KillProcess
FromAgent = ProcessExited | PositionsSeen

TO_AGENT: Codec[ToAgent] = Codec(ToAgent)
FROM_AGENT: Codec[FromAgent] = Codec(FromAgent)
