"""A folder of code as a set of files by their content, and as a tree on another host's disk.

Owns ``Workspace`` (what a folder holds), ``Store`` (what a host holds of all that it was ever
sent) and ``take_up`` (what a process does with a tree).  Who sends what to whom is
``workspace_sync``'s work.

Invariants:
    A file is known by the digest of its content and is sent to a host once.
    A tree is laid down whole, under the digest of all that is in it, or not at all; one that is
    there never changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType

from danaus.core.errors import ConfigError

MOST_BYTES = 256 * 1024 * 1024
_LEFT_OUT = ("__pycache__",)


@dataclass(frozen=True)
class Workspace:
    """What a folder holds.

    Args:
        files: Digests by path, relative and with slashes.
        contents: What each digest stands for.
    """

    files: Mapping[str, str]
    contents: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """Of all of it."""
        lines = "".join(f"{digest} {path}\n" for path, digest in sorted(self.files.items()))
        return digest_of(lines.encode())


def digest_of(data: bytes) -> str:
    """Return the name of this content."""
    return hashlib.sha256(data).hexdigest()


def read_workspace(folder: Path) -> Workspace:
    """Return what a folder holds; hidden files and caches are left out.

    Raises:
        ConfigError: It is no folder, or holds too much to be code.
    """
    if not folder.is_dir():
        raise ConfigError(what=f"{folder} is no folder", needed="the folder that holds your code")
    files: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    total = 0
    for path in sorted(_walk(folder)):
        data = path.read_bytes()
        total += len(data)
        if total > MOST_BYTES:
            raise ConfigError(
                what=f"{folder} holds more than {MOST_BYTES >> 20} MiB",
                needed="a folder of code; data and checkpoints lie elsewhere",
            )
        digest = digest_of(data)
        files[path.relative_to(folder).as_posix()] = digest
        contents[digest] = data
    return Workspace(files, contents)


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _LEFT_OUT or path.suffix == ".pyc":
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path


class Store:
    """What one host holds.

    Args:
        folder: Private, on the host's disk; made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._objects, self._trees = folder / "objects", folder / "trees"

    def missing(self, digests: set[str]) -> set[str]:
        """Return those that were never sent here."""
        return {digest for digest in digests if not (self._objects / digest).exists()}

    def add(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents, each whole or not at all.

        Raises:
            ValueError: One is not what its digest says.
            OSError: The disk is full.
        """
        self._objects.mkdir(mode=0o700, parents=True, exist_ok=True)
        for digest, data in contents.items():
            if digest_of(data) != digest:
                raise ValueError(f"what came as {digest} has another digest: {digest_of(data)}")
            with _becoming(self._objects / digest) as path:
                path.write_bytes(data)

    def lay_down(self, workspace: Workspace) -> Path:
        """Return the folder of a tree, made now if it is not there.

        Raises:
            ValueError: A path leads out of the tree.
            OSError: The disk is full, or a content is not here.
        """
        tree = self._trees / workspace.digest
        if tree.is_dir():
            return tree
        self._trees.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _becoming(tree) as root:
            root.mkdir(mode=0o700)
            for name, digest in workspace.files.items():
                pure = PurePosixPath(name)
                if pure.is_absolute() or ".." in pure.parts:
                    raise ValueError(f"{name!r} leads out of the workspace")
                path = root / pure
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._objects / digest, path)
        return tree


@contextlib.contextmanager
def _becoming(path: Path) -> Iterator[Path]:
    """Yield a place beside ``path`` that is put there at the end, unless another came first."""
    beside = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    try:
        yield beside / "new"
        try:
            os.replace(beside / "new", path)
        except OSError:
            if not path.exists():
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


# -- in a process --------------------------------------------------------------------------------

_tree: list[str] = []  # where this process has its workspace from, at most one
_executed: dict[str, str] = {}  # digests of the modules that were executed here, by name


def take_up(tree: Path, *, reload: bool) -> list[str]:
    """Import from a tree from now on; return the modules that were executed again.

    Of modules that are imported already those are executed again whose file has changed, in
    their own namespace, what they import from before them.  Functions that are called by name
    are then the new ones.  Classes of actors that run, and names that other modules have taken
    with ``from … import …``, stay what they were.

    Args:
        tree: The folder.
        reload: Whether modules that are imported already are executed again.
    """
    for old in _tree:
        with contextlib.suppress(ValueError):
            sys.path.remove(old)
    _tree[:] = [str(tree)]
    sys.path.insert(0, str(tree))
    importlib.invalidate_caches()
    tops = {path.stem for path in tree.iterdir()}
    # A module that has been imported is put behind what it imports itself.
    loaded = [
        (module, path)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in tops and (path := _file_of(tree, name)) is not None
    ]
    for module, path in loaded:
        if hasattr(module, "__path__"):
            module.__path__ = [str(path.parent)]
    return [module.__name__ for module, path in loaded if reload and _execute(module, path)]


def _file_of(tree: Path, name: str) -> Path | None:
    path = tree.joinpath(*name.split("."))
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


def _execute(module: ModuleType, path: Path) -> bool:
    """Execute a module again if it is not what its file is now; tell whether."""
    name, digest = module.__name__, digest_of(path.read_bytes())
    known = _executed.get(name)
    if known is None and module.__file__ is not None:
        with contextlib.suppress(OSError):
            known = digest_of(Path(module.__file__).read_bytes())
    if known != digest:
        importlib.reload(module)
    _executed[name] = digest
    return known != digest
