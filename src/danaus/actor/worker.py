"""A worker process: forked by the nursery, it runs actors until it is told to end.

The main thread waits, for signals too; connections, users' ``async`` code and each actor have
threads of their own, so that an endpoint that blocks stops none of them (A-2).
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import inspect
import os
import queue
import sys
from pathlib import Path

import msgspec

from danaus.actor import agent_messages as talk
from danaus.actor import notice
from danaus.actor.agent_link import Patience
from danaus.actor.binding import bind_here
from danaus.actor.connections import PATIENCE
from danaus.actor.contexts import ProcessInfo
from danaus.actor.identity import HostRef
from danaus.actor.nursery_messages import STACKS_SIGNAL, WorkerSpec
from danaus.actor.process_runtime import set_runtime
from danaus.actor.runtime import Runtime
from danaus.actor.workspace import take_up
from danaus.core.whole_file import WholeFile
from danaus.wire.address import Address
from danaus.wire.codec import unpack
from danaus.wire.position import PositionBlock
from danaus.wire.secret import Secret

_CLEANUP_LIMIT_S = 60.0


def main(spec: WorkerSpec, secret: Secret) -> int:
    """Run a worker.

    Returns:
        The exit code of the process.
    """
    os.environ.update(spec.env)
    # Stacks are written by a signal handler in C: a held interpreter lock does not prevent it.
    faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True)
    faulthandler.enable(file=sys.stderr)
    # For the main thread; None: end.  A signal may interrupt ``put`` and put as well.
    jobs: queue.SimpleQueue[notice.Job | None] = queue.SimpleQueue()
    notice.arm(jobs.put)
    codes: list[int] = []  # of ``sys.exit`` in users' code; none: the agent asks for the end

    def leave(code: int) -> None:
        codes.append(code)
        jobs.put(None)

    info = ProcessInfo(
        process_id=spec.process_id,
        agent_address=spec.agent_address,
        run_dir=spec.run_dir,
        log_path=spec.log_path,
        position=PositionBlock.open(spec.position_path),
        host=spec.host,
        rank=spec.rank,
        sockets=spec.sockets,
        root_id=spec.root_id,
        root_address=spec.root_address,
    )
    sys.breakpointhook = _break_here
    bind_here(spec.place)
    runtime = Runtime(info, on_stop=lambda: jobs.put(None), on_exit=leave)
    set_runtime(runtime)
    if spec.workspace and Path(spec.workspace).is_dir():
        take_up(Path(spec.workspace), reload=True)
    if spec.bootstrap_path:
        _run_bootstrap(Path(spec.bootstrap_path))
    patience = Patience(PATIENCE.heartbeat_limit_s, spec.lost_limit_s)
    job = runtime.connections.join(secret, Address.parse(spec.bind), patience)
    address = runtime.connections.address_of(job)
    host = HostRef(spec.host, spec.agent_address, job)
    runtime.io.post(
        lambda: runtime.connections.agent(host).say(talk.WorkerReady(spec.process_id, address))
    )
    while (told := jobs.get()) is not None:
        told()
    if codes:
        return codes[0]
    runtime.shut_down(_CLEANUP_LIMIT_S)
    return 0


def _break_here(*args: object, **kwargs: object) -> None:
    # Imported when it is needed: it is made of actors itself, and few stop at breakpoints.
    importlib.import_module("danaus.actor.debugging").break_here(*args, **kwargs)


def _run_bootstrap(path: Path) -> None:
    """Call what the owner wants to be called first; what it raises ends this process."""
    data = WholeFile(path).read()
    path.unlink(missing_ok=True)
    bootstrap = unpack(msgspec.msgpack.decode(data, type=list[bytes]))
    result = bootstrap()
    if inspect.iscoroutine(result):
        asyncio.run(result)
