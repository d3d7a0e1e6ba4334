"""Which of PyTorch Monarch's public names (0.7.0) are here; the README tells of the others."""

from __future__ import annotations

from pathlib import Path

import danaus.actor

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
NAMES = [
    "Accumulator",
    "Actor",
    "ActorError",
    "Channel",
    "ChannelTransport",
    "Context",
    "Endpoint",
    "Extent",
    "Future",
    "HostMesh",
    "MeshFailure",
    "Point",
    "Port",
    "PortReceiver",
    "ProcId",
    "ProcMesh",
    "Uid",
    "ValueMesh",
    "as_endpoint",
    "attach",
    "attach_to_workers",
    "concurrent_endpoint",
    "config",
    "context",
    "current_actor_name",
    "current_rank",
    "current_size",
    "debug_controller",
    "default_bootstrap_cmd",
    "enable_transport",
    "endpoint",
    "get_meter",
    "get_or_spawn_controller",
    "returns_future",
    "run_worker_loop_forever",
    "run_worker_loop_until_shutdown",
    "send",
    "shutdown_context",
    "span",
    "start_worker_loop_forever",
    "this_host",
    "this_proc",
    "traced",
    "unhandled_fault_hook",
]
NOT_HERE = {"ProcId", "Uid", "config", "default_bootstrap_cmd"}
METHODS = {
    "Actor": "logger",
    "Endpoint": "broadcast call call_one choose stream",
    "Extent": "get items keys labels nelements region sizes values",
    "Future": "as_asyncio exception get result",
    "HostMesh": "extent initialized shutdown size slice spawn_procs split stop sync_workspace",
    "MeshFailure": "mesh_name report",
    "Point": "extent get items keys rank size values",
    "Port": "exception send",
    "PortReceiver": "ranked recv",
    "ProcMesh": "extent host_mesh initialized logging_option slice spawn split stop to_table",
    "ValueMesh": "extent flatten get item items rename size sizes slice split values",
}


def test_every_name_is_here_or_in_the_readme_s_list_of_what_is_not():
    here = set(danaus.actor.__all__)
    assert set(NAMES) - here == NOT_HERE
    part = README.partition("## Coming from Monarch")[2].partition("\n## ")[0]
    assert not [name for name in NOT_HERE if f"`{name}`" not in part]


def test_every_method_is_here():
    for name, methods in METHODS.items():
        found = getattr(danaus.actor, name)
        assert not [each for each in methods.split() if not hasattr(found, each)], name
