"""What a user's type checker is told of controllers, spawning and traces.  Nobody runs it."""

from __future__ import annotations

from typing import assert_type

from danaus.actor import (
    Actor,
    Context,
    Future,
    HostMesh,
    Point,
    ValueMesh,
    attach,
    context,
    endpoint,
    get_meter,
    get_or_spawn_controller,
    shutdown_context,
    span,
    this_host,
    traced,
)


class Registry(Actor):
    def __init__(self, start: int) -> None:
        self.n = start

    @endpoint
    def add(self, k: int) -> int:
        return k


def controllers() -> None:
    found = get_or_spawn_controller("registry", Registry, 1)
    assert_type(found, Future[Registry])
    assert_type(found.get().add.call_one(1).get(), int)
    get_or_spawn_controller("registry", Registry, "one")  # type: ignore[arg-type]
    get_or_spawn_controller("registry", Registry)  # type: ignore[call-arg]


def hosts() -> None:
    assert_type(attach("tcp:10.0.0.7:4500", "secret"), HostMesh)
    this_host().spawn_procs(
        {"gpus": 2}, lambda: None, "w", env=lambda point: {"A": str(point.rank)}
    )
    this_host().spawn_procs(proc_bind=[{"cpus": "0"}], env={"A": "1"})
    this_host().spawn_procs(env={"A": 1})  # type: ignore[dict-item]
    assert_type(this_host().stop(), Future[None])
    assert_type(this_host().shutdown(grace_s=1.0), Future[None])
    synced = this_host().spawn_procs().sync_workspace("code", auto_reload=False).get()
    assert_type(synced.sent_bytes, dict[str, int])
    assert_type(synced.reloaded, ValueMesh[list[str]])
    assert_type(shutdown_context(host_timeout=1.0), Future[None])
    assert_type(context(), Context)
    assert_type(context().rank, Point)


@traced
def counted(k: int) -> str:
    with span("inner", {"k": k}):
        get_meter().create_counter("calls").add(1)
    return str(k)


@traced(name="counting")
def named(k: int) -> str:
    return str(k)


assert_type(counted(1), str)
assert_type(named(1), str)
counted("one")  # type: ignore[arg-type]
