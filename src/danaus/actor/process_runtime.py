"""The runtime of this process, made when it is first needed."""

from __future__ import annotations

import os
import secrets
import threading

from danaus.actor.contexts import Context, ProcessInfo
from danaus.actor.identity import ProcessRef
from danaus.actor.runtime import Runtime
from danaus.core.extent import Point

_lock = threading.Lock()
_runtime: Runtime | None = None
_pid = 0


def get_runtime() -> Runtime:
    """Return this process's runtime; a program that has none becomes a controller."""
    global _runtime, _pid
    found = _runtime
    if found is not None and _pid == os.getpid():
        return found
    with _lock:
        if _runtime is None or _pid != os.getpid():
            # A forked copy of a controller has none of its threads: it is a process of its own.
            name = f"controller/{os.getpid()}.{secrets.token_hex(3)}/0#0"
            _runtime, _pid = Runtime(ProcessInfo(name)), os.getpid()
        return _runtime


def set_runtime(runtime: Runtime | None) -> None:
    """Be a worker: use a runtime that was made elsewhere."""
    global _runtime, _pid
    with _lock:
        _runtime, _pid = runtime, os.getpid()


def take_runtime() -> Runtime | None:
    """Return the runtime, if there is one, and forget it."""
    global _runtime
    with _lock:
        runtime, _runtime = _runtime, None
        return runtime if _pid == os.getpid() else None


def public_refs(refs: tuple[ProcessRef, ...]) -> tuple[ProcessRef, ...]:
    """Return the references as other processes can use them."""
    runtime = get_runtime()
    mine = runtime.info.process_id
    return tuple(runtime.connections.ref() if ref.process_id == mine else ref for ref in refs)


def context() -> Context:
    """Return who calls: the actor and its place, or this program."""
    return get_runtime().context()


def current_rank() -> Point:
    """Return the calling actor's place in its mesh; a mapping that knows its ``rank``."""
    return context().point


def current_size() -> dict[str, int]:
    """Return the sizes, by axis, of the calling actor's mesh."""
    return context().point.extent.to_dict()


def current_actor_name() -> str:
    """Return the calling actor's name."""
    return context().actor_name
