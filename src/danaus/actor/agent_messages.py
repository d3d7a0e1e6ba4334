"""What is said with a host agent by owners of processes and by workers.

The structs of those who only watch or fence are in ``wire.lifecycle``; an agent understands
both, on any authenticated session, and sends what is defined here only to those who greeted it.
"""

from __future__ import annotations

import msgspec

from danaus.actor.binding import Binding
from danaus.actor.debug_messages import FromAgentOfBreakpoints, ToAgentOfBreakpoints
from danaus.wire.codec import Codec
from danaus.wire.lifecycle import KillProcess, PositionsSeen, ProcessExited, WatchProcess

NOT_HERE = "not running here"
HANG = "hang"
OUT_OF_MEMORY = "out of memory"


class Hello(msgspec.Struct, frozen=True):
    """Who opens a session; proven by the handshake to hold the job's secret.

    ``address`` is where it listens itself, ``agent_address`` its host agent (empty in a
    controller).  ``generation`` counts the controllers of a run that were started one after the
    other; 0: whoever it is, nobody takes its place.
    """

    process_id: str
    address: str = ""
    agent_address: str = ""
    generation: int = 0


class AgentSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an agent is started; written to a file that its argument names.  Holds no secret.

    Args:
        host: Name of the host in process ids.
        folder: Private folder of this host's agent: pid registry, positions.
        sockets: Private folder, with a short path, for unix sockets.
        run_dir: Folder of the run; its ``logs`` takes the logs.
        address: Where to listen: ``unix:/path``, or ``tcp:host:0``.
        secret_path: File of the job's secret.
        preload: Modules that the nursery imports.
        sys_path: Import path of workers.
        detached: Go on without the controller.
        controller_pid: Whose end ends an agent that is not detached.
        lifeline_fd: Inherited read end of the controller's lifeline; -1 for none.
        ready_fd: Inherited write end on which the agent says its address; -1 for none.
        lost_limit_s: Seconds for which sessions of owners outlive their connection.
        spawns: Workers are not forked: each is an interpreter of its own.
    """

    host: str
    folder: str
    sockets: str
    run_dir: str
    address: str
    secret_path: str
    preload: tuple[str, ...] = ()
    sys_path: tuple[str, ...] = ()
    detached: bool = False
    controller_pid: int = 0
    lifeline_fd: int = -1
    ready_fd: int = -1
    lost_limit_s: float = 10.0
    spawns: bool = False


# -- to the agent -------------------------------------------------------------------------------


class Greet(msgspec.Struct, frozen=True, tag="greet", omit_defaults=True):
    """Answer with ``Welcome``, then send ``Beat`` twice a second.

    ``generation`` as in ``Hello``: controllers of earlier ones are not obeyed from now on, and are
    told (``OwnerReplaced``).
    """

    generation: int = 0


class NewProcess(msgspec.Struct, frozen=True):
    """One worker to start; ``number`` counts those of its mesh on this host, of ``of``."""

    process_id: str
    rank: int
    env: dict[str, str] = {}
    number: int = 0
    of: int = 1


class Owner(msgspec.Struct, frozen=True):
    """Who starts processes.

    ``agent`` is that process's host agent (empty: a controller), ``root_id`` and ``root_address``
    the controller that all began with, and where it listens.
    """

    process_id: str
    agent: str
    root_id: str
    root_address: str


class StartProcesses(msgspec.Struct, frozen=True, tag="start_processes"):
    """Fork these workers; the session becomes their owner's and is told of starts and ends.

    ``workspace`` is a folder of this host that they import from first; empty: none is.
    ``bootstrap`` is what each of them calls before it does anything else, packed; empty: nothing.
    """

    mesh_id: str
    processes: tuple[NewProcess, ...]
    owner: Owner
    binding: Binding = Binding()
    bootstrap: tuple[bytes, ...] = ()
    workspace: str = ""


class ListOwned(msgspec.Struct, frozen=True, tag="list_owned"):
    """Answer with ``Owned``: which processes of a controller live here."""


class AdoptProcesses(msgspec.Struct, frozen=True, tag="adopt_processes"):
    """Be these processes' owner: told of each as if it had been started from this session.

    Of those that are gone by ``ProcessExited``, with what is remembered of their end.
    """

    owner: str
    process_ids: tuple[str, ...]


class LocateProcess(msgspec.Struct, frozen=True, tag="locate_process"):
    """Answer with ``ProcessReady`` once it listens, and with ``ProcessExited`` once it is gone."""

    process_id: str


class StopProcesses(msgspec.Struct, frozen=True, tag="stop_processes"):
    """Ask, wait ``grace_s``, terminate, wait, kill (P-5); ends are reported one by one.

    With ``reason``, if there is one.
    """

    process_ids: tuple[str, ...]
    grace_s: float
    reason: str = ""


class ForwardLogs(msgspec.Struct, frozen=True, tag="forward_logs"):
    """From now on send (or stop to send) the lines that these processes write."""

    process_ids: tuple[str, ...]
    on: bool


class WorkerReady(msgspec.Struct, frozen=True, tag="worker_ready"):
    """A worker listens at ``address``."""

    process_id: str
    address: str


class EndUnattended(msgspec.Struct, frozen=True, tag="end_unattended"):
    """End once nobody has worked here for some time."""


class TakeStacks(msgspec.Struct, frozen=True, tag="take_stacks"):
    """Say what every thread of every worker is at; answered by ``StacksTaken``."""


class ShutDown(msgspec.Struct, frozen=True, tag="shut_down"):
    """Stop every worker, then end."""

    grace_s: float
    reason: str = ""


# -- from the agent -----------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """Who answers; ``pid`` means something on the same machine only."""

    host: str
    pid: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The agent is alive (P-2)."""


class ProcessStarted(msgspec.Struct, frozen=True, tag="process_started"):
    """Forked."""

    process_id: str
    pid: int
    log_path: str


class ProcessReady(msgspec.Struct, frozen=True, tag="process_ready"):
    """It listens at ``address``."""

    process_id: str
    pid: int
    address: str


class LogLines(msgspec.Struct, frozen=True, tag="log_lines"):
    """What a process wrote."""

    process_id: str
    lines: tuple[str, ...]


class Owned(msgspec.Struct, frozen=True, tag="owned"):
    """The processes of a controller that live here."""

    process_ids: tuple[str, ...]


class OwnerReplaced(msgspec.Struct, frozen=True, tag="owner_replaced"):
    """To a controller: a later one, of this generation, has taken its place; it is not obeyed."""

    generation: int


class StopWorker(msgspec.Struct, frozen=True, tag="stop_worker"):
    """To a worker: end in good order; who calls its actors meanwhile is told ``reason``."""

    reason: str = ""


class HostLeaving(msgspec.Struct, frozen=True, tag="host_leaving"):
    """The agent was asked to end: it does so once its workers have, and starts no others."""

    reason: str


class ProcessStacks(msgspec.Struct, frozen=True):
    """What one worker is at.

    Args:
        process_id: Its name.
        pid: Its process.
        step: Of its position; 0 before the first.
        phase: Of its position, a ``wire.position.Phase``.
        text: The stacks of its threads; empty: it wrote none, because of ``why``.
    """

    process_id: str
    pid: int
    step: int
    phase: int
    text: str = ""
    why: str = ""


class StacksTaken(msgspec.Struct, frozen=True, tag="stacks_taken"):
    """What the workers of this host were at, at about one moment."""

    processes: tuple[ProcessStacks, ...]


ToAgent = (
    Greet
    | StartProcesses
    | ListOwned
    | AdoptProcesses
    | LocateProcess
    | StopProcesses
    | ForwardLogs
    | WorkerReady
    | EndUnattended
    | TakeStacks
    | ShutDown
    | ToAgentOfBreakpoints
    | WatchProcess
    | KillProcess
)
FromAgent = (
    Welcome
    | Beat
    | ProcessStarted
    | ProcessReady
    | LogLines
    | Owned
    | OwnerReplaced
    | StopWorker
    | HostLeaving
    | StacksTaken
    | FromAgentOfBreakpoints
    | ProcessExited
    | PositionsSeen
)

TO_AGENT: Codec[ToAgent] = Codec(ToAgent)
FROM_AGENT: Codec[FromAgent] = Codec(FromAgent)
HELLO: Codec[Hello] = Codec(Hello)
