"""Parts for tests with a real quorum service: its process, a host agent that only watches and
kills, and members that follow what they are told."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from danaus.core.clock import Deadline
from danaus.core.journal import read
from danaus.quorum.client import QuorumClient
from danaus.quorum.messages import (
    AbortExchange,
    Announcement,
    ChangePending,
    MemberId,
    Released,
    Seat,
    StepReport,
)
from danaus.quorum.resolve import follows
from danaus.wire.address import Address
from danaus.wire.lifecycle import (
    FROM_AGENT,
    TO_AGENT,
    FromAgent,
    KillProcess,
    PositionsSeen,
    ProcessExited,
    ProcessPosition,
    WatchProcess,
)
from danaus.wire.secret import Secret
from danaus.wire.session import Session, serve_sessions

SOURCE = Path(__file__).parents[3] / "src"
LIMIT_S = 20.0


class ServiceProcess:
    """``python -m danaus.quorum.service`` in a folder, started and killed at will."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.address = f"unix:{folder}/s"
        self.secret_path = folder / "secret"
        self.secret = Secret.create(self.secret_path)
        self.journal = folder / "journal.jsonl"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> Self:
        command = [
            sys.executable, "-m", "danaus.quorum.service",
            "--folder", f"{self.folder}/quorum", "--address", self.address,
            "--secret", str(self.secret_path), "--journal", str(self.journal),
            *self.options, *more,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        return self

    def end(self, how: int | None = None) -> tuple[int, str]:
        """End it by a signal, or by closing its lifeline; return exit code and what it printed."""
        process = self.process
        assert process is not None
        if how is not None:
            process.send_signal(how)
        output, _ = process.communicate(timeout=LIMIT_S)
        self.process = None
        return process.returncode, output.decode()

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in read(self.journal) if line["event"] == event]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)


class FakeAgent:
    """A host agent on a thread of its own: says who lives, where they stand, and kills.

    Attributes:
        alive: The process ids that it has; taking one out is a death.
        stubborn: Process ids that cannot be killed.
        killed: What it was asked to kill.
    """

    def __init__(self, address: str, secret: Secret) -> None:
        self.address, self._secret = address, secret
        self.alive: set[str] = set()
        self.stubborn: set[str] = set()
        self.killed: queue.Queue[KillProcess] = queue.Queue()
        self.on_kill: Callable[[str], None] = lambda _name: None
        self.watched: queue.Queue[str] = queue.Queue()
        self._watchers: dict[str, list[Session]] = {}
        self._exits: dict[str, ProcessExited] = {}
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fake agent")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(LIMIT_S)

    def die(self, process_id: str) -> None:
        """Let a process be dead, as the kernel would tell."""
        self._loop.call_soon_threadsafe(self._gone, process_id, "SIGKILL", "")

    def show(self, *positions: ProcessPosition) -> None:
        """Send positions to whoever watches these processes."""
        self._loop.call_soon_threadsafe(self._show, positions)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        listener = await serve_sessions(Address.parse(self.address), self._secret, self._on_session)
        self._ready.set()
        await self._done.wait()
        await listener.close()

    async def _on_session(self, session: Session) -> None:
        async for parts in session:
            asked = TO_AGENT.decode(parts[0])
            self._watchers.setdefault(asked.process_id, []).append(session)
            if isinstance(asked, WatchProcess):
                self.watched.put(asked.process_id)
                if asked.process_id not in self.alive:
                    unknown = ProcessExited(asked.process_id, reason="not running here")
                    self._say(session, self._exits.get(asked.process_id, unknown))
            else:
                self.killed.put(asked)
                if asked.process_id not in self.stubborn:
                    self.on_kill(asked.process_id)
                    self._gone(asked.process_id, "SIGKILL", asked.reason)

    def _gone(self, process_id: str, name: str, reason: str) -> None:
        self.alive.discard(process_id)
        exited = ProcessExited(process_id, signal=name, reason=reason)
        self._exits[process_id] = exited
        for session in self._watchers.get(process_id, []):
            self._say(session, exited)

    def _show(self, positions: tuple[ProcessPosition, ...]) -> None:
        for session in {s for p in positions for s in self._watchers.get(p.process_id, [])}:
            self._say(session, PositionsSeen(positions))

    @staticmethod
    def _say(session: Session, message: FromAgent) -> None:
        if not session.is_closed:
            session.send([FROM_AGENT.encode(message)])


class MemberThread:
    """One member: holds a report, asks on a thread of its own, and notes what it hears."""

    def __init__(
        self,
        service: ServiceProcess,
        name: str,
        *,
        rank: int = 0,
        incarnation: int = 0,
        agent: FakeAgent | None = None,
        **seat: Any,
    ) -> None:
        member = MemberId(name, rank, incarnation)
        self.process_id = seat.pop("process_id", f"host/{member}")
        address = agent.address if agent else ""
        self.seat = msgspec.structs.replace(
            Seat(member, 1, f"unix:/{name}", address, self.process_id), **seat
        )
        self.report = StepReport(0, "seed")
        if agent is not None:
            agent.alive.add(self.process_id)
        self.changes: queue.Queue[ChangePending] = queue.Queue()
        self.aborts: queue.Queue[AbortExchange] = queue.Queue()
        self.answers: queue.Queue[Announcement | Released | Exception] = queue.Queue()
        self.client = QuorumClient(
            service.address,
            service.secret,
            self.seat,
            heartbeat_s=0.1,
            on_change_pending=self.changes.put,
            on_abort=self.aborts.put,
        )
        self._thread: threading.Thread | None = None

    def become(self, **changes: Any) -> None:
        self.report = msgspec.structs.replace(self.report, **changes)

    def commit(self, step: int) -> None:
        assert self.report.last_quorum is not None
        epoch = self.report.last_quorum.epoch
        self.become(committed_step=step, fingerprint=f"f{step}", committed_epoch=epoch)

    def ask(self) -> None:
        """Join on a thread of its own; ``answers`` gets what comes of it."""
        self._thread = threading.Thread(target=self._join, name=f"{self.seat.member} joins")
        self._thread.start()

    def _join(self) -> None:
        try:
            told = self.client.join(self.report, Deadline.after(LIMIT_S))
        except Exception as error:
            self.answers.put(error)
            return
        if isinstance(told, Released):
            self.answers.put(told)
            return
        if follows(self.report, told.outcome):
            self.become(committed_step=told.outcome.step, fingerprint=f"f{told.outcome.step}")
        self.become(
            last_quorum=told.record(),
            seen_epoch=told.epoch,
            open_step=None,
            lineage_term=told.lineage_term,
        )
        self.answers.put(told)

    def answer(self) -> Announcement:
        """Return the quorum that it was told of."""
        answer = self.answers.get(timeout=LIMIT_S)
        assert isinstance(answer, Announcement), answer
        return answer

    def stop(self) -> None:
        self.client.close()
        if self._thread is not None:
            self._thread.join(LIMIT_S)


class Members:
    """Members that are stopped at the end of a test."""

    def __init__(self, service: ServiceProcess, agent: FakeAgent | None = None) -> None:
        self.service, self.agent = service, agent
        self.all: list[MemberThread] = []

    def add(self, name: str, incarnation: int = 0, **more: Any) -> MemberThread:
        member = MemberThread(self.service, name, incarnation=incarnation, agent=self.agent, **more)
        self.all.append(member)
        return member

    def form(self, *members: MemberThread) -> Announcement:
        """Let all ask and return what all are told."""
        for member in members:
            member.ask()
        told = [member.answer() for member in members]
        assert all(each == told[0] for each in told), "Q-2: the same to each"
        return told[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.all:
            member.stop()
