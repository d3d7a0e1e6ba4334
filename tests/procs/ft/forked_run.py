"""A quorum service, and replicas that a process forks which has imported torch: once for all."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from danaus.core.clock import Deadline
from danaus.core.journal import read

SOURCE = Path(__file__).parents[3] / "src"
LIMIT_S = 50.0


class Run:
    """A quorum service, and replicas that are forked in a folder by a script.

    The script gets the folder and the read end of a pipe, the gate; on its input a line for each
    replica to fork, ``NAME WORD``.  What a replica says begins with its name.
    """

    script: tuple[str, ...] = ("forking.py", "loop_parts")
    heartbeat_limit_s = 4.0
    limit_s = LIMIT_S
    options: tuple[str, ...] = ("--expected-replicas=3",)
    addresses: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.lines: dict[str, list[str]] = {}
        self._text = b""
        gate, self._gate = os.pipe()
        self.service = self.start_service()
        script, *part = self.script
        command = (str(Path(__file__).parent / script), *part, str(folder), str(gate))
        self.nursery = python(*command, *self.addresses, pass_fds=(gate,))
        os.close(gate)

    def start_service(self) -> subprocess.Popen[bytes]:
        options = [*self.options, f"--heartbeat-limit-s={self.heartbeat_limit_s}"]
        return python("-m", "danaus.quorum.service", f"--run={self.folder}", *options)

    def start(self, name: str, word: int | str = 0) -> None:
        assert self.nursery.stdin is not None
        self.lines[name] = []
        self.nursery.stdin.write(f"{name} {word}\n".encode())
        self.nursery.stdin.flush()

    def until(self, ready: Callable[[], bool]) -> None:
        """Read what replicas say until ``ready()``."""
        deadline = Deadline.after(self.limit_s)
        assert self.nursery.stdout is not None
        while not ready():
            if not select.select([self.nursery.stdout], [], [], deadline.remaining_s())[0]:
                last = {name: lines[-1:] for name, lines in self.lines.items()}
                raise AssertionError(f"nothing said for long; last: {last}")
            new = os.read(self.nursery.stdout.fileno(), 65536)
            assert new, "the script has ended"
            self._text += new
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                name, _, said = line.decode().partition(" ")
                self.lines[name].append(said)

    def all_say(self, text: str, *names: str) -> None:
        self.until(lambda: all(text in self.lines[name] for name in names))

    def said(self, name: str, start: str) -> str:
        self.until(lambda: any(line.startswith(start) for line in self.lines[name]))
        return next(line for line in self.lines[name] if line.startswith(start))

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(int(self.said(name, "pid").split()[1]), number)

    def open_gate(self) -> None:
        os.close(self._gate)
        self._gate = -1

    def journal(self, event: str) -> list[dict[str, object]]:
        return [line for line in read(self.folder / "journal.jsonl") if line["event"] == event]

    def close(self) -> None:
        if self._gate >= 0:
            self.open_gate()
        for process in (self.nursery, self.service):
            end(process)


def python(*command: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        pass_fds=pass_fds, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by the end of its input, and those that it has forked."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    process.wait(LIMIT_S)
