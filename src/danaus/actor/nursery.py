"""The nursery: a process that has imported the heavy modules and forks workers from itself.

``python -m danaus.actor.nursery FD``, started by the host agent with one end of a pair of sockets.
It runs no thread and no event loop, so that its forks are clean (P-6), and it is the parent of
the workers: it reaps them and reports their status (P-1).  With the agent it dies at once, by a
lifeline; where the kernel has none for a process without threads, as soon as it sees the end of
its socket, and its workers before it (P-4).  Without it the workers go on: where a process can be,
the agent is a subreaper and adopts them.

A process that was just made becomes a worker only after the agent can hear of it: it waits for a
word by a pipe, which comes after the report.  If the nursery dies before, there is no such worker,
and the agent may ask for it again.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import NoReturn

from danaus.actor import nursery_messages as talk
from danaus.actor import procfs
from danaus.actor.boot import command
from danaus.actor.nursery_stream import READ_BYTES, Incoming, framed
from danaus.core import proc_root
from danaus.core.lifeline import arm_lifeline
from danaus.core.patient_text import patient_text
from danaus.core.process_descriptor import open_process
from danaus.wire.secret import Secret

# Whatever a worker needs in any case.
_ALWAYS = ("cloudpickle", "uvloop", "danaus.actor.worker")
_BEGIN = b"\1"
NOT_BEGUN = "danaus: its nursery died before this worker began"


class Nursery:
    """Forks on request, reports ends.

    Args:
        agent: The socket to the host agent.
    """

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._incoming = Incoming("the host agent")
        self._asked: collections.deque[talk.ToNursery] = collections.deque()
        while not self._asked:
            if not self._receive():
                raise SystemExit(0)
        settings = self._asked.popleft()
        if not isinstance(settings, talk.NurserySettings):
            raise SystemExit("the first message must be the settings")
        self._settings = settings
        arm_lifeline(settings.lifeline_fd, by_thread=False)
        self._secret = Secret.load(settings.secret_path)
        self._children: dict[int, tuple[int, str]] = {}  # descriptor -> pid, process id
        self._spawned: dict[int, subprocess.Popen[bytes]] = {}
        self._poll = select.poll()
        self._poll.register(agent, select.POLLIN)
        self._signals: tuple[int, ...] = ()  # that a worker has to take back

    def prepare(self) -> None:
        """Import what workers will need, and say so."""
        start = time.monotonic()
        sys.path[:] = [*self._settings.sys_path]
        missing: dict[str, str] = {}
        gc.disable()  # imports leave next to nothing to collect; looking for it takes long
        if not self._settings.spawns:
            missing = load(self._settings)
            self._secret.mac(b"", b"")  # the first takes half a millisecond, also in every fork
        gc.freeze()  # the collector of a worker leaves these pages shared
        gc.enable()
        self._signals = signals_in_use()
        self._say(talk.NurseryReady(time.monotonic() - start, proc_root.num_own_threads(), missing))

    def run(self) -> None:
        """Serve until the agent is gone, then end the workers."""
        with contextlib.suppress(SystemExit):  # there is nobody to talk to
            while self._serve():
                pass
        self._end_workers()

    def _serve(self) -> bool:
        """Wait for what comes next and see to it; false once the agent is gone."""
        for fd, _ in self._poll.poll(0 if self._asked else None):
            if fd != self._agent.fileno():
                self._reap(fd)
            elif not self._receive():
                return False
        if self._asked:  # one in a turn: an end does not wait for many beginnings
            message = self._asked.popleft()
            if isinstance(message, talk.WorkerSpec):
                self._make(message)
        return True

    def _receive(self) -> bool:
        """Take what has come; false once the agent is gone."""
        try:
            data = self._agent.recv(READ_BYTES)
        except ConnectionError:
            return False
        self._asked += map(talk.to_nursery.decode, self._incoming.filled(data))
        return bool(data)

    # -- making workers ------------------------------------------------------------------------

    def _make(self, spec: talk.WorkerSpec) -> None:
        born = talk.Born(self._settings, spec)
        ends: list[int] = []  # of the pipe by which it is told to begin
        try:
            ends += os.pipe()
            pid = self._spawn(ends[0]) if self._settings.spawns else os.fork()
        except OSError as error:
            for end in ends:
                os.close(end)
            self._say(talk.ForkFailed(spec.process_id, f"fork: {error.strerror}"))
            return
        hears, tells = ends
        if pid == 0:
            os.close(tells)
            # Python's own object must not close this number later, when it means another file.
            self._agent.detach()
            become_worker(born, self._secret, self._signals, hears=hears)
        os.close(hears)
        self._announce(pid, spec.process_id)
        _tell(tells, talk.encode(born) if self._settings.spawns else _BEGIN)

    def _spawn(self, hears: int) -> int:
        """Start a worker where a process must not be forked: as an interpreter of its own."""
        worker = subprocess.Popen(
            command("danaus.actor.spawned", str(hears)),
            pass_fds=(hears, self._settings.lifeline_fd),
        )
        self._spawned[worker.pid] = worker
        return worker.pid

    def _announce(self, pid: int, process_id: str) -> None:
        stat = procfs.read_stat(pid)
        forked = talk.Forked(process_id, pid, stat.started if stat else 0)
        try:
            descriptor = open_process(pid)
        except ProcessLookupError:  # without pidfd, of one that has ended already
            self._say(forked)
            self._take_status(pid, process_id)
            return
        self._children[descriptor] = (pid, process_id)
        self._poll.register(descriptor, select.POLLIN)
        self._say(forked)

    # -- their ends ----------------------------------------------------------------------------

    def _reap(self, descriptor: int) -> None:
        pid, process_id = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        self._take_status(pid, process_id)

    def _take_status(self, pid: int, process_id: str) -> None:
        try:
            # What the worker itself has started ends with it; its pid is still ours to name.
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            pass
        _, status = os.waitpid(pid, 0)
        if pid in self._spawned:  # whose end is known now, as its object must know too
            self._spawned.pop(pid).returncode = os.waitstatus_to_exitcode(status)
        self._say(talk.Reaped(process_id, pid, status))

    def _end_workers(self) -> None:
        """Leave none behind: where the kernel sees to that, too, one of both is first."""
        for pid, _ in self._children.values():
            for kill in (os.killpg, os.kill):  # it may lead no group yet
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)

    def _say(self, message: talk.FromNursery) -> None:
        try:
            self._agent.sendall(framed(talk.encode(message)))
        except ConnectionError:
            raise SystemExit(0) from None


def load(settings: talk.NurserySettings) -> dict[str, str]:
    """Import what workers need; return why what could not be."""
    missing: dict[str, str] = {}
    for name in dict.fromkeys((*_ALWAYS, *settings.preload)):
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:  # a library that cannot be loaded, too
            missing[name] = str(error)
    missing.pop("uvloop", None)
    return missing


def become_worker(
    born: talk.Born, secret: Secret, signals_taken: tuple[int, ...], *, hears: int = -1
) -> NoReturn:
    """Turn a process that was just made into a worker; never returns into its caller's code.

    Args:
        born: What it is.
        secret: The job's.
        signals_taken: Which its nursery ignores or catches.
        hears: The pipe by which it is told to begin; -1: it was.
    """
    code, spec = 1, born.spec
    try:
        os.setsid()
        _reset_signals(signals_taken)
        lifeline = arm_lifeline(born.settings.lifeline_fd, whole_group=True)
        _redirect(spec.log_path)
        _close_all_but({0, 1, 2, lifeline, hears})
        if hears >= 0:
            _await_beginning(hears)
        code = importlib.import_module("danaus.actor.worker").main(spec, secret)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        if (error := sys.exc_info()[1]) is not None:
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(code)


def _tell(pipe: int, words: bytes) -> None:
    """Write to a pipe, and close it."""
    rest = memoryview(words)
    try:
        while rest:
            rest = rest[os.write(pipe, rest) :]
    except BrokenPipeError:
        pass  # who was to hear it has ended
    finally:
        os.close(pipe)


def _await_beginning(hears: int) -> None:
    """Wait for the nursery's word, which comes once the agent can hear of this process."""
    word = os.read(hears, len(_BEGIN))
    os.close(hears)
    if word != _BEGIN:
        print(NOT_BEGUN, file=sys.stderr)
        raise SystemExit(1)


def signals_in_use() -> tuple[int, ...]:
    """Return the signals that this process, with what it has imported, ignores or catches."""
    masks = 0
    try:
        lines = (proc_root.ROOT / "self" / "status").read_text().splitlines()
    except OSError:  # of those that were not set by Python it is not known here
        found = ((number, signal.getsignal(number)) for number in signal.valid_signals())
        return tuple(number for number, handler in found if handler is not signal.SIG_DFL)
    for line in lines:
        if line.startswith(("SigIgn:", "SigCgt:")):
            masks |= int(line.split()[1], 16)
    return tuple(number for number in range(1, signal.NSIG) if masks >> (number - 1) & 1)


def _reset_signals(in_use: tuple[int, ...]) -> None:
    for number in in_use:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # reserved by the C library
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _redirect(log_path: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # a full disk: better a worker without a log than none
        log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Whatever happens to the log must not end an endpoint that prints.
    sys.stdout, sys.stderr = patient_text(1, losing=None), patient_text(2, losing=None)


def _close_all_but(keep: set[int]) -> None:
    for descriptor in proc_root.own_descriptors():
        if descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the listing's own


def main() -> None:
    """Run a nursery on the socket whose number is the only argument."""
    # The agent ends a nursery by SIGKILL; a Ctrl-C at the terminal is not for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()
    nursery = Nursery(socket.socket(fileno=int(sys.argv[1])))
    nursery.prepare()
    nursery.run()


if __name__ == "__main__":
    main()
