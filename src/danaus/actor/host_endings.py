"""How hosts are emptied and ended from here; on the connections' loop."""

from __future__ import annotations

from collections.abc import Callable

from danaus.actor import agent_messages as talk
from danaus.actor.identity import HostRef
from danaus.actor.runtime import Runtime


def stop_procs_on(
    runtime: Runtime, agents: set[str], then: Callable[[], None], *, grace_s: float
) -> None:
    """Stop the process meshes owned here that have a process on hosts with these agents."""
    meshes = [
        mesh
        for mesh in runtime.supervisor.owned_procs()
        if any(ref.agent_address in agents for ref in mesh.refs)
    ]
    left = len(meshes)

    def one_less(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for mesh in meshes:
        mesh.grace_s = grace_s
        mesh.ended.add_done_callback(one_less)
        runtime.supervisor.stop(mesh)
    if not meshes:
        then()


def shut_down_hosts(
    runtime: Runtime, hosts: tuple[HostRef, ...], then: Callable[[], None], *, grace_s: float
) -> None:
    """Have the agents of hosts stop whatever runs there and end; call ``then`` after that."""
    left = set(hosts)

    def one_less(host: HostRef, _: str, is_lost: bool) -> None:
        if is_lost and host in left:
            left.discard(host)
            if not left:
                runtime.on_host_news.remove(one_less)
                then()

    runtime.on_host_news.append(one_less)
    for host in hosts:
        agent = runtime.connections.agent(host)
        agent.say(talk.ShutDown(grace_s))
        if agent.lost_why:
            one_less(host, agent.lost_why, True)
