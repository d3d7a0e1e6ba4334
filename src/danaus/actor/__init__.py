"""Actors, endpoints, meshes of hosts, processes and actors, and their supervision.

The public face: names are loaded when they are first used; ``__init__.pyi`` says what they are.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Accumulator": "danaus.actor.accumulator",
    "Actor": "danaus.actor.endpoints",
    "ActorError": "danaus.core.errors",
    "ActorMesh": "danaus.actor.actor_mesh",
    "Channel": "danaus.actor.ports",
    "ChannelTransport": "danaus.actor.here",
    "Context": "danaus.actor.instance",
    "Endpoint": "danaus.actor.faces",
    "Extent": "danaus.core.extent",
    "Future": "danaus.actor.future",
    "HostMesh": "danaus.actor.mesh",
    "MeshFailure": "danaus.actor.failure",
    "Outcome": "danaus.actor.value_mesh",
    "Point": "danaus.core.extent",
    "Port": "danaus.actor.ports",
    "PortReceiver": "danaus.actor.ports",
    "ProcMesh": "danaus.actor.mesh",
    "ProcessInfo": "danaus.actor.contexts",
    "Region": "danaus.core.extent",
    "Replies": "danaus.actor.replies",
    "Restart": "danaus.actor.restart",
    "RestartBudget": "danaus.actor.restart",
    "Shape": "danaus.core.shape",
    "Slice": "danaus.core.shape",
    "SupervisionError": "danaus.core.errors",
    "ValueMesh": "danaus.actor.value_mesh",
    "as_endpoint": "danaus.actor.calls",
    "attach": "danaus.actor.attaching",
    "attach_to_workers": "danaus.actor.attaching",
    "concurrent_endpoint": "danaus.actor.endpoints",
    "context": "danaus.actor.instance",
    "current_actor_name": "danaus.actor.process_runtime",
    "current_rank": "danaus.actor.process_runtime",
    "current_size": "danaus.actor.process_runtime",
    "debug_controller": "danaus.actor.debugging",
    "enable_transport": "danaus.actor.here",
    "endpoint": "danaus.actor.endpoints",
    "get_meter": "danaus.actor.telemetry",
    "get_or_spawn_controller": "danaus.actor.controllers",
    "returns_future": "danaus.actor.deferred",
    "run_worker_loop_forever": "danaus.actor.waiting_host",
    "run_worker_loop_until_shutdown": "danaus.actor.worker_loops",
    "send": "danaus.actor.calls",
    "shutdown_context": "danaus.actor.here",
    "span": "danaus.actor.telemetry",
    "start_worker_loop_forever": "danaus.actor.worker_loops",
    "this_host": "danaus.actor.here",
    "this_proc": "danaus.actor.here",
    "traced": "danaus.actor.telemetry",
    "unhandled_fault_hook": "danaus.actor.fault_hook",
    "wait_all": "danaus.actor.replies",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
