"""How hosts are emptied and ended from here; on the connections' loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from danaus.actor import agent_messages as talk
from danaus.actor.identity import HostRef
from danaus.actor.runtime import Runtime


@dataclass(frozen=True)
class StopTerms:
    """How what runs on hosts is stopped.

    Args:
        grace_s: Seconds that each process has to end by itself.
        reason: What those are told who call it later.
    """

    grace_s: float
    reason: str


def stop_procs_on(
    runtime: Runtime, agents: set[str], then: Callable[[], None], *, terms: StopTerms
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
        mesh.grace_s, mesh.stop_reason = terms.grace_s, mesh.stop_reason or terms.reason
        mesh.ended.add_done_callback(one_less)
        runtime.supervisor.stop(mesh)
    if not meshes:
        then()


def shut_down_hosts(
    runtime: Runtime, hosts: tuple[HostRef, ...], then: Callable[[], None], *, terms: StopTerms
) -> None:
    """Have the agents of hosts stop whatever runs there and end; call ``then`` after that."""
    left = set(hosts)

    def one_less(host: HostRef, _: str, is_lost: bool) -> None:
        if is_lost and host in left:
            left.discard(host)
            release = runtime.connections.releases.pop(host.agent_address, None)
            if release is not None:
                release(terms.reason or "it was shut down")
            if not left:
                runtime.on_host_news.remove(one_less)
                then()

    runtime.on_host_news.append(one_less)
    for host in hosts:
        agent = runtime.connections.agent(host)
        agent.say(talk.ShutDown(terms.grace_s, terms.reason))
        if agent.lost_why:
            one_less(host, agent.lost_why, True)
