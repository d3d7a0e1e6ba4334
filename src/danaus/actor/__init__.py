"""Actors, endpoints, meshes of hosts, processes and actors, and their supervision."""

import importlib
from typing import Any

_EXPORTS = {
    "Actor": "endpoints",
    "ActorError": "danaus.core.errors",
    "ActorMesh": "mesh",
    "Context": "contexts",
    "Endpoint": "calls",
    "Extent": "danaus.core.extent",
    "Future": "future",
    "HostMesh": "mesh",
    "MeshFailure": "failure",
    "Outcome": "value_mesh",
    "Point": "danaus.core.extent",
    "ProcMesh": "mesh",
    "ProcessInfo": "contexts",
    "Region": "danaus.core.extent",
    "Restart": "restart",
    "RestartBudget": "restart",
    "SupervisionError": "danaus.core.errors",
    "ValueMesh": "value_mesh",
    "concurrent_endpoint": "endpoints",
    "context": "process_runtime",
    "current_actor_name": "process_runtime",
    "current_rank": "process_runtime",
    "current_size": "process_runtime",
    "endpoint": "endpoints",
    "shutdown_context": "here",
    "this_host": "here",
    "this_proc": "here",
    "unhandled_fault_hook": "fault_hook",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    home = _EXPORTS.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(home if "." in home else f"{__name__}.{home}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
