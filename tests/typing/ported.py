"""What a user's type checker is told of the rest of Monarch's words.  Nobody runs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

from danaus.actor import (
    Actor,
    ActorError,
    ActorMesh,
    Channel,
    Context,
    Extent,
    Future,
    HostMesh,
    MeshFailure,
    Point,
    ProcessInfo,
    ProcMesh,
    Region,
    Restart,
    RestartBudget,
    Shape,
    Slice,
    SupervisionError,
    attach_to_workers,
    context,
    current_actor_name,
    current_size,
    debug_controller,
    enable_transport,
    endpoint,
    run_worker_loop_forever,
    run_worker_loop_until_shutdown,
    start_worker_loop_forever,
    this_host,
    this_proc,
    unhandled_fault_hook,
)
from danaus.actor.contexts import Creator
from danaus.actor.debugging import Breakpoint
from danaus.actor.doing import Doing


class Ported(Actor):
    @endpoint
    def log(self) -> None:
        assert_type(self.logger, logging.Logger)

    def __supervise__(self, failure: MeshFailure) -> bool:
        assert_type(failure.mesh_name, str)
        assert_type(failure.coordinate, Mapping[str, int] | None)
        assert_type(failure.report(), str)
        return True

    async def __cleanup__(self, exc: BaseException | None) -> None: ...


def geometry(actors: ActorMesh[Ported], procs: ProcMesh, hosts: HostMesh) -> None:
    assert_type(actors.flatten("all"), ActorMesh[Ported])
    assert_type(procs.split(hosts=("dp", "pp"), pp=2), ProcMesh)
    assert_type(hosts.rename(hosts="nodes"), HostMesh)
    assert_type(procs.sizes, dict[str, int])
    assert_type(Extent.of({"gpus": 2}).region(), Region)
    assert_type(Shape(("gpus",), Slice.new_row_major((2,))).extent, Extent)
    assert_type(procs.to_table(), str)
    assert_type(procs.stop("its work is done"), Future[None])
    assert_type(procs.stop(grace_s=1.0), Future[None])
    procs.stop("done", 1.0)  # type: ignore[call-arg]
    assert_type(hosts.to_table(), str)
    actors.flatten(1)  # type: ignore[arg-type]


def places() -> None:
    assert_type(this_proc(), ProcMesh)
    assert_type(current_size(), dict[str, int])
    assert_type(current_actor_name(), str)
    assert_type(context(), Context)
    assert_type(context().proc, ProcessInfo)
    assert_type(context().message_rank, Point)
    assert_type(context().actor_instance.class_name, str)
    me = context().actor_instance
    assert_type(me.actor_id, str)
    assert_type(me.proc, ProcMesh)
    assert_type(me.proc.host_mesh, HostMesh)
    assert_type(me.creator, Creator | None)
    assert_type(me.stop("it is done"), None)
    assert_type(dict(me.proc.extent), dict[str, int])
    assert_type(me.proc.extent["gpus"], int)


async def hosts_and_logs(address: Future[str]) -> None:
    enable_transport("tcp://127.0.0.1:0")
    async with attach_to_workers(["tcp://10.0.0.7:4500", address], Path("secret")) as hosts:
        assert_type(hosts, HostMesh)
        assert_type(await hosts.initialized, None)
        async with hosts.spawn_procs() as procs:
            assert_type(procs, ProcMesh)
            assert_type(procs.logging_option(True, 3, logging.INFO), Doing[None])
            assert_type(asyncio.create_task(procs.logging_option()), asyncio.Task[None])
    assert_type(await debug_controller().breakpoints(1.0), list[Breakpoint])
    run_worker_loop_forever("tcp:10.0.0.7:4500", "secret", name="here")
    run_worker_loop_until_shutdown("tcp:10.0.0.7:4500", "secret")
    assert_type(start_worker_loop_forever("tcp:10.0.0.7:4500", "secret"), Future[None])
    run_worker_loop_forever("tcp:10.0.0.7:4500")  # type: ignore[call-arg]


def faults(failure: MeshFailure) -> str:
    this_host().spawn_procs().spawn("p", Ported, restart=Restart("rest_for_one", period_s=9.0))
    assert_type(RestartBudget(Restart()), RestartBudget)
    assert_type(unhandled_fault_hook(failure), None)
    try:
        port, receiver = Channel[bytes].open_ranked()
        port.send(b"")
        assert_type(receiver.recv().get(), tuple[int, bytes])
    except ActorError as error:
        assert_type(error.exception, BaseException | None)
        return error.remote_traceback
    except SupervisionError as error:
        return error.signal or ""
    return ""
