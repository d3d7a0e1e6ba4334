"""Meshes without a job: this host, this process; and the end of all that they have started."""

from __future__ import annotations

import atexit
import contextlib
import enum
import threading

from danaus.actor.future import Future
from danaus.actor.identity import HostRef, ProcessRef
from danaus.actor.local_agent import HostOptions, LocalAgent, start_agents
from danaus.actor.mesh import HostMesh, ProcMesh
from danaus.actor.process_runtime import get_runtime, take_runtime
from danaus.actor.spelled_address import address_of
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent
from danaus.core.temporary_folder import TemporaryFolder
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_SHUTDOWN_LIMIT_S = 15.0
_AGENT_LIMIT_S = 5.0

_lock = threading.Lock()
_implicit: ImplicitHost | None = None
_transport: Address | None = None  # None: unix sockets


class ChannelTransport(enum.Enum):
    """How this program and its host talk, in Monarch's words; encryption is no choice (W-2)."""

    Unix = "unix"
    TcpWithLocalhost = "tcp"
    TcpWithHostname = TcpWithLocalhost  # its host is on this machine: the loopback does


class ImplicitHost:
    """The host that a program gets that asked for no job: an agent, in a temporary folder."""

    def __init__(self) -> None:
        self.is_lost = False
        self._folder = TemporaryFolder()
        runtime, folder = get_runtime(), self._folder.path
        with contextlib.ExitStack() as stack:
            stack.callback(self._folder.remove)
            secret_path = folder / "secret"
            listen = _transport or Address.unix(folder / "c")
            runtime.connections.join(Secret.create(secret_path), listen)
            bind = Address.tcp(_transport.host, 0) if _transport is not None else None
            options = HostOptions(folder, folder, secret_path, bind=bind)
            self._agent = LocalAgent("local", options)
            stack.callback(self.close)
            (self.host,) = start_agents([self._agent], runtime)
            runtime.on_host_news.append(self._hear)
            stack.pop_all()

    def _hear(self, host: HostRef, _: str, is_lost: bool) -> None:
        self.is_lost = self.is_lost or (is_lost and host == self.host)

    def close(self) -> None:
        """End the agent and remove the folder."""
        self._agent.kill()
        self._agent.wait(_AGENT_LIMIT_S)
        self._agent.release()
        self._folder.remove()


def this_host() -> HostMesh:
    """Return the host that this process runs on, on the axis ``hosts`` of size 1.

    In a program that asked for no job, the first call starts a host agent, and so does the first
    one after it was shut down or lost.
    """
    global _implicit
    runtime = get_runtime()
    if runtime.info.agent_address:
        ref = HostRef(runtime.info.host, runtime.info.agent_address, runtime.connections.ref().job)
        return HostMesh(Extent(("hosts",), (1,)).region(), (ref,))
    with _lock:
        if _implicit is not None and _implicit.is_lost:
            ended, _implicit = _implicit, None
            ended.close()
        if _implicit is None:
            _implicit = ImplicitHost()
            atexit.unregister(shutdown_context)
            atexit.register(shutdown_context)
        return HostMesh(Extent(("hosts",), (1,)).region(), (_implicit.host,))


def enable_transport(transport: str | ChannelTransport) -> None:
    """Choose how this program and the host that it starts itself talk, before it is started.

    Args:
        transport: ``unix`` (or ``ipc``), which is what they do otherwise; ``tcp``, on the
            loopback; or where this program is to listen, as in ``tcp:10.0.0.7:0``.  What is
            bound outside of the loopback is encrypted (W-2).

    Raises:
        ConfigError: The host is there already.
        AddressRefused: It is no address.
    """
    global _transport
    if isinstance(transport, ChannelTransport):
        transport = transport.value
    with _lock:
        if _implicit is not None:
            raise ConfigError(
                what="the transport cannot be changed any more",
                needed="enable_transport() before this_host() is called",
            )
        if transport in ("unix", "ipc"):
            _transport = None
        elif transport == "tcp":
            _transport = Address.tcp("127.0.0.1", 0)
        else:
            _transport = address_of(transport)


def this_proc() -> ProcMesh:
    """Return this process as a mesh of one, without axes: actors can be spawned on it."""
    runtime = get_runtime()
    ref = ProcessRef(runtime.info.process_id, "", "", "")
    return ProcMesh(
        Extent((), ()).region(), (ref,), name="this_proc", mesh_id=f"proc:{ref.process_id}"
    )


def shutdown_context(host_timeout: float | None = None) -> Future[None]:
    """Stop everything that this program owns, then the runtime itself; safe to call twice.

    Args:
        host_timeout: Seconds that processes have to end by themselves; None: as they are stopped
            otherwise.

    Returns:
        A future that is settled: all is over when this returns.
    """
    global _implicit
    with _lock:
        implicit, _implicit = _implicit, None
        runtime = take_runtime()
        try:
            if runtime is not None:
                runtime.shut_down(_SHUTDOWN_LIMIT_S, host_timeout)
        finally:
            if implicit is not None:
                implicit.close()
                atexit.unregister(shutdown_context)
    return Future.of(None)
