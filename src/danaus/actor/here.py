"""Meshes without a job: this host, this process; and the end of all that they have started."""

from __future__ import annotations

import atexit
import contextlib
import threading

from danaus.actor.identity import HostRef, ProcessRef
from danaus.actor.local_agent import HostOptions, LocalAgent, start_agents
from danaus.actor.mesh import HostMesh, ProcMesh
from danaus.actor.process_runtime import get_runtime, take_runtime
from danaus.core.extent import Extent
from danaus.core.temporary_folder import TemporaryFolder
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_SHUTDOWN_LIMIT_S = 15.0
_AGENT_LIMIT_S = 5.0

_lock = threading.Lock()
_implicit: ImplicitHost | None = None


class ImplicitHost:
    """The host that a program gets that asked for no job: an agent, in a temporary folder."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        runtime, folder = get_runtime(), self._folder.path
        with contextlib.ExitStack() as stack:
            stack.callback(self._folder.remove)
            secret_path = folder / "secret"
            runtime.connections.join(Secret.create(secret_path), Address.unix(folder / "c"))
            options = HostOptions(folder, folder, secret_path)
            self._agent = LocalAgent("local", options)
            stack.callback(self.close)
            (self.host,) = start_agents([self._agent], runtime)
            stack.pop_all()

    def close(self) -> None:
        """End the agent and remove the folder."""
        self._agent.kill()
        self._agent.wait(_AGENT_LIMIT_S)
        self._agent.release()
        self._folder.remove()


def this_host() -> HostMesh:
    """Return the host that this process runs on, on the axis ``hosts`` of size 1.

    In a program that asked for no job, the first call starts a host agent.
    """
    global _implicit
    runtime = get_runtime()
    if runtime.info.agent_address:
        ref = HostRef(runtime.info.host, runtime.info.agent_address, runtime.connections.ref().job)
        return HostMesh(Extent(("hosts",), (1,)).region(), (ref,))
    with _lock:
        if _implicit is None:
            _implicit = ImplicitHost()
            atexit.register(shutdown_context)
        return HostMesh(Extent(("hosts",), (1,)).region(), (_implicit.host,))


def this_proc() -> ProcMesh:
    """Return this process as a mesh of one, without axes: actors can be spawned on it."""
    runtime = get_runtime()
    ref = ProcessRef(runtime.info.process_id, "", "", "")
    return ProcMesh(
        Extent((), ()).region(), (ref,), name="this_proc", mesh_id=f"proc:{ref.process_id}"
    )


def shutdown_context() -> None:
    """Stop everything that this program owns, then the runtime itself; safe to call twice."""
    global _implicit
    with _lock:
        implicit, _implicit = _implicit, None
        runtime = take_runtime()
        try:
            if runtime is not None:
                runtime.shut_down(_SHUTDOWN_LIMIT_S)
        finally:
            if implicit is not None:
                implicit.close()
                atexit.unregister(shutdown_context)
