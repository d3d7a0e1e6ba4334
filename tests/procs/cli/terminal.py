"""The ``danaus`` command under a terminal or a pipe, as a person has it: keys, signals, output.

Owns ``Command``, ``called`` and the flags that make a run tiny.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import danaus
from danaus.cli.main import main
from danaus.core import journal
from danaus.core.clock import Deadline

T = TypeVar("T")
SOURCE = Path(danaus.__file__).parents[1]
LIMIT_S = 45.0
_WIDTH, _HEIGHT = 110, 30
_POLL_S = 0.02

TINY = (
    "--model.dim=32",
    "--model.ffn-dim=64",
    "--step.num-microbatches=4",
    "--step.seq-len=32",
    "--checkpoint.every-steps=10",
    "--data=text.txt",
)
"""Flags of a run of the debug preset that takes a few ms a step; ``text`` makes its text."""


def text(folder: Path) -> Path:
    """Write the text of a tiny run."""
    path = folder / "text.txt"
    path.write_bytes(bytes(range(256)) * 256)
    return path


def told(run: Path, event: str) -> list[dict[str, Any]]:
    """Return a run's journal lines of one event."""
    path = run / "journal.jsonl"
    return [e for e in journal.read(path) if e["event"] == event] if path.exists() else []


def sha256_in(words: str) -> str:
    """Return the hash of the final state that a run printed."""
    return re.findall(r"sha256 ([0-9a-f]{64})", words)[-1]


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the command without a process of its own; for what ends before it starts anything."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


class Command:
    """A running ``danaus`` command, in a session of its own as a terminal's shell starts it.

    Args:
        folder: Where it runs.
        words: What follows ``danaus``.
        on_terminal: Give it a terminal; else its output is a pipe.
        before: A folder in front of the module path.
    """

    def __init__(
        self, folder: Path, *words: str, on_terminal: bool = False, before: str = ""
    ) -> None:
        self.text = ""
        self._code: int | None = None
        ours, theirs = pty.openpty() if on_terminal else os.pipe()
        if on_terminal:
            size = struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0)
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        path = os.pathsep.join(filter(None, (before, str(SOURCE))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "danaus.cli.main", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "TERM": "xterm"},
            stdin=theirs if on_terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal if on_terminal else None,  # noqa: PLW1509
        )
        os.close(theirs)
        self._ours: int | None = ours

    @property
    def pid(self) -> int:
        """The process that the person started."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(LIMIT_S)
        self._close()
        if error is not None:
            print(self.text)

    def wait_for(self, pattern: str, *, limit_s: float = LIMIT_S, start: int = 0) -> re.Match[str]:
        """Read until ``pattern`` stands in the output; return where."""
        deadline = Deadline.after(limit_s)
        while (found := re.compile(pattern, re.MULTILINE).search(self.text, start)) is None:
            if not self._read(deadline):
                raise AssertionError(f"{pattern!r} did not come:\n{self.text}")
        return found

    def wait_until(self, what: Callable[[], T | None], *, limit_s: float = LIMIT_S) -> T:
        """Read until ``what`` returns something; return that."""
        deadline = Deadline.after(limit_s)
        while (found := what()) is None:
            self._read(Deadline.after(min(_POLL_S, deadline.remaining_s())))
            if deadline.passed or self._process.poll() is not None:
                raise AssertionError(f"it did not come:\n{self.text}")
        return found

    def wait(self, *, limit_s: float = LIMIT_S) -> int:
        """Read to the end; return the exit code, that of a shell for a death by signal."""
        deadline = Deadline.after(limit_s)
        while self._read(deadline):
            pass
        code = self._process.wait(max(0.1, deadline.remaining_s()))
        return code if code >= 0 else 128 - code

    def type(self, keys: str) -> None:
        """Press keys at the terminal."""
        assert self._ours is not None
        os.write(self._ours, keys.encode())

    def ctrl_c(self) -> None:
        """Press Ctrl-C: the terminal, or whoever stands in for it, signals the whole group."""
        if self._ours is not None and os.isatty(self._ours):
            os.write(self._ours, b"\x03")
        else:
            os.killpg(self.pid, signal.SIGINT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that the person started."""
        os.kill(self.pid, number)

    def close_terminal(self) -> None:
        """Close the terminal's window: the kernel hangs up on its session."""
        self._close()

    def _close(self) -> None:
        if self._ours is not None:
            os.close(self._ours)
            self._ours = None

    def _read(self, deadline: Deadline) -> bool:
        """Read once; tell whether there may be more before the deadline."""
        if self._ours is None:
            return False
        readable, _, _ = select.select([self._ours], [], [], deadline.remaining_s())
        if not readable:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # a terminal's way to say that nobody holds its other end
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def _take_terminal() -> None:
    """Make standard input the session's own terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
