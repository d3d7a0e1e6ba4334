"""Brings the code of this program's folder to the hosts and processes that work for it.

Owns ``sync``: over the connections that are there, which are authenticated, each host is sent
what it lacks; then every process takes up the same tree.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from danaus.actor.attempt import Attempt
from danaus.actor.doing import Doing
from danaus.actor.endpoints import Actor, endpoint
from danaus.actor.identity import ProcessRef, host_name
from danaus.actor.process_runtime import context
from danaus.actor.value_mesh import ValueMesh
from danaus.actor.workspace import Store, Workspace, read_workspace, take_up


@dataclass(frozen=True)
class Synced:
    """What a sync has done.

    Args:
        digest: Of the whole workspace.
        num_files: How many files it has.
        sent_bytes: What was sent to each host, by its name.
        reloaded: The modules that each process has executed again.
    """

    digest: str
    num_files: int
    sent_bytes: dict[str, int]
    reloaded: ValueMesh[list[str]]


class Keeper(Actor):
    """In each process that a workspace is brought to."""

    def __init__(self) -> None:
        proc = context().proc
        self._store = Store(Path(proc.run_dir) / "workspace" / proc.host)

    @endpoint
    def missing(self, digests: set[str]) -> set[str]:
        """Return which contents this host lacks."""
        return self._store.missing(digests)

    @endpoint
    def receive(self, workspace: Workspace) -> str:
        """Keep the contents that came along, and lay the tree down; return where."""
        self._store.add(workspace.contents)
        return str(self._store.lay_down(workspace))

    @endpoint
    def take_up(self, tree: str, reload: bool) -> list[str]:
        """Import from the tree from now on."""
        return take_up(Path(tree), reload=reload)


class Processes(Protocol):
    """A mesh of processes, as it is seen from here."""

    @property
    def refs(self) -> tuple[ProcessRef, ...]:
        """Its processes, by rank."""

    def flatten(self, name: str) -> Any:
        """Return the same mesh on one axis."""

    def spawn(self, name: str, cls: type[Keeper]) -> Any:
        """Make an actor on each."""


def sync(
    procs: Processes, folder: Path, *, reload: bool, laid_down: Callable[[str, str], None]
) -> Synced:
    """Bring a folder to every process of a mesh; waits until all have it.

    Nothing is taken up anywhere before every host has all of it.

    Args:
        procs: The processes.
        folder: What is brought.
        reload: Whether modules that they have imported are executed again.
        laid_down: Told, for each host, its agent's address and where the tree lies.

    Raises:
        ConfigError: It is no folder of code.
        ExceptionGroup: What failed, and where.
    """
    workspace = read_workspace(folder)
    keepers = procs.spawn("workspace", Keeper)
    try:
        return _sync(procs.refs, keepers, workspace, reload=reload, laid_down=laid_down)
    finally:
        keepers.stop().get()


def _sync(
    refs: tuple[ProcessRef, ...],
    keepers: Any,
    workspace: Workspace,
    *,
    reload: bool,
    laid_down: Callable[[str, str], None],
) -> Synced:
    flat = keepers.flatten("rank")
    writers: dict[str, Any] = {}  # one process of each host writes
    for rank, ref in enumerate(refs):
        if ref.agent_address not in writers:
            writers[ref.agent_address] = flat.slice(rank=rank)
    wanted = set(workspace.contents)
    lacks = {at: keeper.missing.call_one(wanted) for at, keeper in writers.items()}
    sent = {at: _part(workspace, future.get()) for at, future in lacks.items()}
    laying = {at: keeper.receive.call_one(sent[at]) for at, keeper in writers.items()}
    trees = {at: future.get() for at, future in laying.items()}
    taking = [
        flat.slice(rank=rank).take_up.call_one(trees[ref.agent_address], reload)
        for rank, ref in enumerate(refs)
    ]
    reloaded = ValueMesh(keepers.extent.region(), [future.get() for future in taking])
    for at, tree in trees.items():
        laid_down(at, tree)
    names = {ref.agent_address: host_name(ref.process_id) for ref in refs}
    sizes = {names[at]: sum(map(len, part.contents.values())) for at, part in sent.items()}
    return Synced(workspace.digest, len(workspace.files), sizes, reloaded)


def _part(workspace: Workspace, digests: set[str]) -> Workspace:
    return Workspace(workspace.files, {each: workspace.contents[each] for each in digests})


def in_background(work: Callable[[], Synced], what: str) -> Doing[Synced]:
    """Return a future of what ``work`` returns, on a thread of its own, as whoever runs now."""
    future: Doing[Synced] = Doing(what)

    def run() -> None:
        with Attempt() as attempt:
            future.set_value(work())
        if attempt.error is not None:
            future.set_error(attempt.error)

    me = contextvars.copy_context()
    threading.Thread(target=me.run, args=(run,), name="workspace", daemon=True).start()
    return future
