"""The file in which a controller's holdings are written down as they change (A-12).

Owns ``HoldingsLog``.  What the lines mean is ``holdings``'s.  The file is private, is appended to
before what it says is done, and is written anew once it has grown far beyond what it says.

A disk without room ends nothing: what could not be written is kept, is written with the next
change or by ``retry``, and is said once.

Invariants:
    A-12: each controller of a file has a generation above all before it; one that finds the file
    written by a later one writes nothing any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from danaus.actor.holdings import (
    ControllerBegan,
    Entry,
    Holdings,
    apply,
    line_of,
    lines_of,
    replay,
)
from danaus.actor.made_of import MadeOf
from danaus.core.file_lock import take_lock

_LEAST_BYTES = 64 * 1024
"""A file that is shorter is not worth writing anew."""
_GROWN_BY = 4
_LOCK_LIMIT_S = 1.0
_MODE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class HoldingsLog:
    """One controller's holdings, in memory and on the disk.  May be used from several threads.

    Args:
        path: The file; made (0600) by ``begin``.

    Attributes:
        on_trouble: Told why nothing can be written, and with an empty text once it can be again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made = made_beside(path)
        self.state = Holdings()
        self.num_dropped = 0
        self.replaced = False
        self.on_trouble: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()
        self._file = -1
        self._size = 0
        self._unwritten: list[Entry] = []
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why nothing can be written now; empty: all is."""
        return self._trouble

    def begin(self, process_id: str, pid: int, started: int) -> int:
        """Become the file's controller; return the generation.

        Args:
            process_id: Of the controller.
            pid: Its pid, with ``started`` a name for it on this machine.
            started: When it was started, as the kernel tells it.

        Raises:
            OSError: The file cannot be opened, for another reason than a full disk.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            trouble = None
            while trouble is None:
                self._file = os.open(self.path, _MODE | os.O_CREAT, 0o600)
                with _locked(self._file):
                    if self._is_there():
                        trouble = self._take_over(process_id, pid, started)
                if trouble is None:  # it was written anew in between
                    os.close(self._file)
            self.made.keep_only(_files_of(self.state))
        self._tell(trouble)
        return self.state.generation

    def _take_over(self, process_id: str, pid: int, started: int) -> str:
        self._read()
        began = ControllerBegan(self.state.generation + 1, process_id, pid, started)
        return self._append_or_keep(began)

    def _read(self) -> None:
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        found = replay(data)
        self.state, self.num_dropped = found.state, found.num_dropped
        self._size = data.rfind(b"\n") + 1
        os.ftruncate(self._file, self._size)  # what is torn is dropped

    def _append_or_keep(self, entry: Entry) -> str:
        self.state = apply(self.state, entry)
        try:
            self._append(line_of(entry))
        except OSError as error:
            self._unwritten.append(entry)
            return error.strerror or str(error)
        return ""

    def record(self, *entries: Entry) -> None:
        """Take in changes and write them down; a disk that does not let it is told of."""
        with self._lock:
            before = _files_of(self.state)
            for entry in entries:
                self.state = apply(self.state, entry)
            self._unwritten += entries
            trouble = self._write()
            needed = _files_of(self.state)
            if before - needed and not self.replaced:
                self.made.remove(before - needed)
        self._tell(trouble)

    def retry(self) -> bool:
        """Write what could not be written; tell whether all is now."""
        with self._lock:
            trouble = self._write()
        self._tell(trouble)
        return not trouble

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    # -- the file ------------------------------------------------------------------------------

    def _write(self) -> str:
        """Write what is not written; return why that cannot be done."""
        if self._file < 0 or self.replaced or not self._unwritten:
            return ""
        older = -1
        try:
            with _locked(self._file):
                if not (self._is_there() and os.fstat(self._file).st_size == self._size):
                    self.replaced = True  # by a later controller: what it wrote stands
                    return ""
                self._append(b"".join(map(line_of, self._unwritten)))
                self._unwritten.clear()
                older = self._write_anew()
        except OSError as error:
            return error.strerror or str(error)
        finally:
            if older >= 0:
                os.close(older)
        return ""

    def _append(self, data: bytes) -> None:
        """Append all of it or nothing."""
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _write_anew(self) -> int:
        """Replace a file that has grown by one that says the same; without room it stays.

        Returns:
            The descriptor of the file that was replaced, to be closed; -1: none was.
        """
        lines = lines_of(self.state)
        if self._size < max(_LEAST_BYTES, _GROWN_BY * len(lines)):
            return -1
        draft = self.path.with_name(f"{self.path.name}.new")
        try:
            draft.unlink(missing_ok=True)
            file = os.open(draft, _MODE | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            return -1
        try:
            _write_all(file, lines)
            os.replace(draft, self.path)
        except OSError:
            os.close(file)
            return -1
        older, self._file, self._size = self._file, file, len(lines)
        return older

    def _is_there(self) -> bool:
        """Tell whether the open file still is the one that has the name."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _tell(self, trouble: str) -> None:
        before, self._trouble = self._trouble, trouble
        if bool(before) != bool(trouble):
            self.on_trouble(trouble)


def read_holdings(path: Path) -> Holdings:
    """Return what a file says, to look at it; nothing where there is none.

    Raises:
        OSError: It cannot be read.
    """
    try:
        return replay(path.read_bytes()).state
    except FileNotFoundError:
        return Holdings()


def remove_holdings(path: Path) -> None:
    """Remove a file that nobody goes on with, and what lies beside it."""
    made_beside(path).keep_only(())
    path.unlink(missing_ok=True)


def made_beside(path: Path) -> MadeOf:
    """Return the files beside a record of this name."""
    return MadeOf(path.with_name(f"{path.name}.made"))


def _files_of(state: Holdings) -> set[str]:
    return {each.made_in for each in state.actors.values() if each.made_in}


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    """Hold the file for an instant: two controllers may begin at one moment."""
    # Not to be had: whoever has it was stopped half way.  It will find that it was replaced.
    held = take_lock(file, limit_s=_LOCK_LIMIT_S)
    try:
        yield
    finally:
        if held:
            fcntl.flock(file, fcntl.LOCK_UN)
