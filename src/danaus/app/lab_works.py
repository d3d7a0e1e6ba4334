"""How a lab is built, changed and cleared, step by step.

Owns ``LabWorks``, which carries out on this machine what a ``LabState`` says.  Whoever calls it
holds the lab's lock.  What a command means is ``lab``'s.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from danaus.actor.boot import command
from danaus.app.lab_folder import LabFolder, LabState, changed
from danaus.app.lab_links import (
    relay_arguments,
    relay_lines,
    relay_name,
    shaping,
    straight_lines,
    taps,
)
from danaus.app.lab_node import Node, kill_strays
from danaus.app.lab_numbers import alias, free_numbers, taken_by
from danaus.app.lab_plan import (
    CONTROLLER,
    MAX_NETWORKS,
    SWITCH,
    LabPlan,
    Line,
    Link,
    address_lines,
    filled,
    join_lines,
    part_lines,
    switch_lines,
)
from danaus.app.lab_rules import ruleset
from danaus.app.lab_tools import carry_out, carry_out_lines, kernel_kinds, until
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, SupervisionError

_LISTEN_S = 30.0
_GONE_S = 20.0
_RELAY_S = 20.0
_SIX = Path("/proc/net/if_inet6")


class LabWorks:
    """What is done to a lab on this machine.

    Args:
        folder: The lab's folder.
        owned: Whether its hosts end with this process.
    """

    def __init__(self, folder: LabFolder, *, owned: bool) -> None:
        self._folder = folder
        self._owned = owned
        self._nodes: dict[str, Node] = {}

    def node(self, name: str) -> Node:
        """Return a node; always the same, as it may hold the node's lifeline."""
        if name not in self._nodes:
            self._nodes[name] = Node(self._folder.path / name)
        return self._nodes[name]

    # -- building and clearing -------------------------------------------------------------

    def build(self, state: LabState) -> None:
        """Build all of a lab in its empty folder; its hosts stay once all of it is there."""
        self._folder.make(state.plan)
        self._folder.write(state)
        switch = self.node(SWITCH)
        switch.begin()
        switch.wait_started()
        pid = switch.living_pid()
        carry_out_lines(switch_lines(state.plan), pid=pid)
        state = self._claim(dataclasses.replace(state, kernel=tuple(sorted(kernel_kinds(pid)))))
        self._folder.write_hosts(state.plan)
        for host in state.plan.hosts:
            self.node(host).begin(self._folder.hosts_path)
        for host in state.plan.hosts:
            self.node(host).wait_started()
            self._plug_in(state.plan, host)
        self.apply_rules(state)
        for host in state.plan.hosts:
            self._give_addresses(state.plan, host)
        self.start_agents(state, state.plan.hosts)
        self.settle(*state.plan.hosts, SWITCH)
        self._folder.write(dataclasses.replace(state, is_complete=True))

    def _claim(self, state: LabState) -> LabState:
        """Take addresses that are nobody's, by the name of the controller's device."""
        routes = json.loads(carry_out(("ip", "-j", "-4", "route", "show")) or "[]")
        pid = self.node(SWITCH).living_pid()
        for number in free_numbers(routes):
            state = changed(state, number=number)
            self._folder.write(state)
            try:
                carry_out_lines(join_lines(state.plan, CONTROLLER, os.getpid()), pid=pid)
            except ConfigError as error:
                carry_out_lines(part_lines(state.plan, CONTROLLER), pid=pid, tolerant=True)
                if "File exists" not in error.needed:
                    raise
                continue  # another lab was first
            self._address_controller(state.plan)
            return state
        raise ConfigError("no addresses are left for another lab", to_do="take one down")

    def _address_controller(self, plan: LabPlan) -> None:
        lines: list[Line] = [
            ("link", "set", plan.device_of(CONTROLLER, n), "alias", alias(self._folder.path))
            for n in plan.networks
        ]
        carry_out_lines([*lines, *address_lines(plan, CONTROLLER, with_ipv6=_SIX.exists())])

    def _plug_in(self, plan: LabPlan, host: str) -> None:
        lines = join_lines(plan, host, self.node(host).living_pid())
        carry_out_lines(lines, pid=self.node(SWITCH).living_pid())

    def _give_addresses(self, plan: LabPlan, host: str) -> None:
        """Let a host send and receive; what is cut or lost has its rule before."""
        lines = address_lines(plan, host, with_ipv6=_SIX.exists())
        carry_out_lines(lines, pid=self.node(host).living_pid())

    def clear(self) -> None:
        """End all that the lab has, in any state that a death may have left it in."""
        switch = self.node(SWITCH).pid
        if switch is not None:
            # Both ends go at once; a namespace's own end takes the kernel a while.
            lines: list[Line] = [("link", "del", f"h0n{n}") for n in range(MAX_NETWORKS)]
            carry_out_lines(lines, pid=switch, tolerant=True)
        for name in self._folder.node_names():
            self.node(name).kill()
        name, path, number = self._folder.name, self._folder.path, self._folder.number()
        deadline = Deadline.after(_GONE_S)
        until(lambda: not kill_strays(path), deadline, f"what lab {name} has started to end")
        until(lambda: not taken_by(path, number), deadline, f"the devices of lab {name} to go")
        self._nodes.clear()

    # -- hosts -----------------------------------------------------------------------------

    def crash(self, state: LabState, host: str) -> None:
        """Take a host's cables out, then end its processes."""
        switch = self.node(SWITCH)
        carry_out_lines(part_lines(state.plan, host), pid=switch.living_pid(), tolerant=True)
        self.node(host).kill()
        switch.want(self.relays(state))
        self.apply_rules(state)

    def start(self, state: LabState, host: str) -> None:
        """Start a host that is down, with the same addresses."""
        node, switch = self.node(host), self.node(SWITCH).living_pid()
        carry_out_lines(part_lines(state.plan, host), pid=switch, tolerant=True)
        node.kill()
        node.begin(self._folder.hosts_path)
        node.wait_started()
        self._plug_in(state.plan, host)
        self.shape(state, host)
        self.apply_rules(state)
        self._give_addresses(state.plan, host)

    def start_agents(self, state: LabState, hosts: Sequence[str]) -> None:
        """Start the agents of hosts, where there are any, and wait until they listen.

        Raises:
            SupervisionError: An agent ended instead.
            DeadlinePassed: One does not listen in time.
        """
        agent = state.agent
        if agent:
            for host in hosts:
                self.node(host).want({"agent": self._agent(state, host)})
        if any("{port}" in word or "{listen}" in word for word in agent):
            for host in hosts:
                self._wait_listening(state, host)

    def _agent(self, state: LabState, host: str) -> tuple[str, ...]:
        plan = state.plan
        address = plan.ipv6_of(host) if plan.ipv6 else plan.ipv4(host)
        facts = {
            "listen": plan.listening(host),
            "address": address,
            "port": str(plan.port),
            "name": host,
            "secret": str(self._folder.secret_path),
            "run_dir": str(self._folder.path / host / "run"),
        }
        return filled(state.agent, facts)

    def _wait_listening(self, state: LabState, host: str) -> None:
        node, port = self.node(host), state.plan.port

        def listens_or_ended() -> bool:
            return node.listens(port) or bool(node.running()["agent"].ended)

        until(listens_or_ended, Deadline.after(_LISTEN_S), f"{host} to listen at port {port}")
        if ended := node.running()["agent"].ended:
            raise SupervisionError(f"the agent of {host}", ended, log_tail=node.log_tail())

    def settle(self, *nodes: str) -> None:
        """Let nodes stay when this process has ended, unless it owns them."""
        if not self._owned:
            for name in nodes:
                self.node(name).detach()

    # -- what the switch does --------------------------------------------------------------

    def apply_rules(self, state: LabState) -> None:
        """Drop what cuts and loss say, and nothing else."""
        pid = self.node(SWITCH).living_pid()
        devices = _devices(Path(f"/proc/{pid}/net/dev").read_text())
        present = [node for node in state.plan.nodes if state.plan.port_of(node) in devices]
        carry_out(("nft", "-f", "-"), pid=pid, given=ruleset(state.plan, present))

    def shape(self, state: LabState, node: str) -> None:
        """Make a node's way as slow as its link says, and no slower."""
        plan, switch = state.plan, self.node(SWITCH)
        pid = switch.living_pid()
        chosen = shaping(plan.link(node), frozenset(state.kernel))
        own = {relay_name(node, network) for network in plan.networks}
        others = {name: argv for name, argv in self.relays(state).items() if name not in own}
        switch.want(others)
        for network in plan.networks:
            carry_out_lines(straight_lines(plan, node, network), pid=pid, tolerant=True)
            self._queue(plan, node, network, qdisc=chosen.qdisc)
            if chosen.relayed:
                carry_out_lines(relay_lines(plan, node, network), pid=pid)
        if chosen.relayed:
            switch.want(self.relays(state))
            for network in plan.networks:
                self._wait_relaying(plan, node, network)

    def _queue(self, plan: LabPlan, node: str, network: int, *, qdisc: Line) -> None:
        own = None if node == CONTROLLER else self.node(node).living_pid()
        ends = (
            (plan.port_of(node, network), self.node(SWITCH).living_pid()),
            (plan.device_of(node, network), own),
        )
        for device, pid in ends:
            carry_out(("tc", "qdisc", "del", "dev", device, "root"), pid=pid, tolerant=True)
            if qdisc:
                carry_out(("tc", "qdisc", "add", "dev", device, *qdisc), pid=pid)

    def relays(self, state: LabState) -> dict[str, tuple[str, ...]]:
        """Return the relays that there shall be."""
        plan, kernel = state.plan, frozenset(state.kernel)
        return {
            relay_name(node, network): tuple(
                command("danaus.app.lab_relay", *relay_arguments(plan, node, network))
            )
            for node in plan.nodes
            for network in plan.networks
            if node not in state.crashed and shaping(plan.link(node), kernel).relayed
        }

    def _wait_relaying(self, plan: LabPlan, node: str, network: int) -> None:
        switch, name = self.node(SWITCH), relay_name(node, network)
        pid = switch.living_pid()

        def relays_or_ended() -> bool:
            ended = switch.running()[name].ended
            return bool(ended) or all(_has_carrier(tap, pid) for tap in taps(plan, node, network))

        until(relays_or_ended, Deadline.after(_RELAY_S), f"{name} to pass frames on")
        if ended := switch.running()[name].ended:
            raise SupervisionError(name, ended, log_tail=switch.log_tail())


def with_link(state: LabState, node: str, link: Link) -> LabState:
    """Return the state with a node's link replaced; a perfect one is not kept."""
    links = {name: each for name, each in state.plan.links.items() if name != node}
    if link != Link():
        links[node] = link
    return changed(state, links=links)


def _has_carrier(device: str, pid: int) -> bool:
    (shown,) = json.loads(carry_out(("ip", "-j", "link", "show", "dev", device), pid=pid))
    return "LOWER_UP" in shown["flags"]


def _devices(text: str) -> set[str]:
    """Return the devices that a file like ``/proc/net/dev`` names."""
    return {line.partition(":")[0].strip() for line in text.splitlines() if ":" in line}
