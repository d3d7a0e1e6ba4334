"""Programs that a bench measures: started together, read by lines of JSON, ended with the bench.

Owns ``Programs``.  What such a program says it writes to its standard output, one JSON object a
line; it ends with its standard input, so that none outlives whoever started it (P-4).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, DeadlinePassed
from danaus.core.lifeline import arm_lifeline

_END_LIMIT_S = 5.0
_MEET_LIMIT_S = 60.0
_POLL_S = 0.005
_SHOWN_BYTES = 2000


def end_with_input() -> int:
    """Have the kernel kill this program once its input ends; return what holds it so."""
    return arm_lifeline(0)


def say(**facts: object) -> None:
    """Write one line of facts, whole."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def leave_word(path: Path, word: str) -> None:
    """Leave a word for other programs in a file, which they see whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(word)
    part.rename(path)


def await_words(paths: Sequence[Path], what: str) -> list[str]:
    """Return the words that other programs leave, once all are there.

    Raises:
        DeadlinePassed: They did not come.
    """
    deadline = Deadline.after(_MEET_LIMIT_S)
    while not all(path.exists() for path in paths):
        if deadline.passed:
            raise DeadlinePassed(what, deadline.limit_s)
        time.sleep(_POLL_S)
    return [path.read_text() for path in paths]


class Program:
    """One program, and what it has said so far.

    Args:
        command: Its arguments, the interpreter first.
        said: The file of what it says.
        env: Its environment; None: this program's.
    """

    def __init__(
        self, command: Sequence[str], said: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.said, self._errors = said, said.with_suffix(".err")
        self._command = list(command)
        with said.open("ab") as out, self._errors.open("ab") as err:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=env
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Tell whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL it and wait for its end; safe to call twice."""
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(_END_LIMIT_S)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what it has said, whole lines only; what a library of a peer prints is no fact."""
        for line in self.said.read_bytes().split(b"\n")[:-1]:
            if line.startswith(b"{"):
                yield json.loads(line)

    def wait(self, deadline: Deadline) -> dict[str, Any]:
        """Wait for its end; return the last line that it said.

        Raises:
            ConfigError: It failed, said nothing, or did not end in time.
        """
        try:
            code = self._process.wait(deadline.remaining_s())
        except subprocess.TimeoutExpired:
            code = None
        said = list(self.lines())
        if code == 0 and said:
            return said[-1]
        how = "did not end in time" if code is None else f"ended with exit code {code}"
        words = self._errors.read_text(errors="replace")[-_SHOWN_BYTES:]
        raise ConfigError(f"{' '.join(self._command)} {how}", words.strip())


class Programs:
    """Programs that are started together and all ended with this object.

    Args:
        folder: Where what they say is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(
        self, command: Sequence[str], *, name: str, env: Mapping[str, str] | None = None
    ) -> Program:
        """Start a program."""
        program = Program(command, self.folder / f"{name}.jsonl", env)
        self._started.append(program)
        return program

    def start_ours(self, module: str, *arguments: object, name: str) -> Program:
        """Start one of this project's modules."""
        return self.start([sys.executable, "-m", module, *map(str, arguments)], name=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all of them; safe to call twice."""
        for program in self._started:
            program.kill()
