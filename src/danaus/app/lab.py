"""A lab: many hosts on one machine, each with its own network, processes and name.

Owns ``Lab``: what each command means.  What shall be is written down first (``lab_folder``), names
and lines come from pure modules (``lab_plan``, ``lab_rules``, ``lab_links``), ``lab_works`` carries
them out.

Invariants:
    All that a lab has in the kernel hangs on the first processes of its nodes and goes with them.
    A host that crashes says no good-bye: its cables are out before its processes die.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from danaus.app.lab_folder import LABS, LabFolder, LabState, changed, labs_there
from danaus.app.lab_node import Node
from danaus.app.lab_plan import CONTROLLER, SWITCH, LabPlan, Link
from danaus.app.lab_rules import LIST_COMMAND, dropped
from danaus.app.lab_status import HostStatus, LabStatus, agent_words, relay_problems
from danaus.app.lab_tools import carry_out, check_ground
from danaus.app.lab_works import LabWorks, with_link
from danaus.core.errors import ConfigError


def host_agent() -> tuple[str, ...]:
    """Return the command of danaus' own host agent, with the places that a lab fills."""
    source = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {source!r}); from danaus.cli.main import main"
    options = ("--listen", "{listen}", "--secret", "{secret}", "--run-dir", "{run_dir}")
    # A host that is killed clears nothing up: what it has for a while is in memory of its own.
    start = ("env", "TMPDIR=/dev/shm", sys.executable, "-c", f"{code}; sys.exit(main())", "host")
    return (*start, *options, "--name", "{name}")


class Lab:
    """A lab by its name.

    Args:
        name: Its name; several labs stand side by side.
        labs: The folder of all labs.
        owned: Whether its hosts end with this process (a test's lab), or stay.
    """

    def __init__(self, name: str, *, labs: Path = LABS, owned: bool = False) -> None:
        self.name = name
        self._folder = LabFolder(name, labs)
        self._works = LabWorks(self._folder, owned=owned)

    # -- up and down -----------------------------------------------------------------------

    def up(self, plan: LabPlan, agent: Sequence[str] = ()) -> bool:
        """Build the lab, or find that it stands as asked for.

        Args:
            plan: What it shall be; its number is chosen here.
            agent: The command of each host (``LabState.agent``); none if empty.

        Returns:
            Whether it had to be built.

        Raises:
            ConfigError: This machine cannot have it, or it stands and is another.
            DependencyMissing: A program is missing.
            SupervisionError: A host or its agent ended at once.
        """
        check_ground()
        with self._folder.held():
            state = self._folder.read()
            if state is not None and state.is_complete and self._node(SWITCH).pid is not None:
                self._must_be_like(state, plan, tuple(agent))
                return False
            self._works.clear()
            self._folder.empty()
            try:
                self._works.build(LabState(plan, tuple(agent)))
            except BaseException:
                self._works.clear()
                self._folder.remove()
                raise
        return True

    def down(self) -> bool:
        """Take the lab down, however far it came; nothing of it is left.

        Returns:
            Whether there was anything.
        """
        if not self._folder.exists:
            return False
        check_ground()
        with self._folder.held():
            self._works.clear()
            self._folder.remove()
        return True

    def _must_be_like(self, state: LabState, plan: LabPlan, agent: tuple[str, ...]) -> None:
        there = state.plan
        like = dataclasses.replace(plan, number=there.number, cuts=there.cuts, links=there.links)
        if like != there or agent != state.agent:
            raise ConfigError(
                f"lab {self.name} is up already, and it is another",
                f"it has {there.num_hosts} hosts on {there.num_networks} networks",
                f"take it down first: danaus lab down --name {self.name}",
            )

    # -- what is done to it ----------------------------------------------------------------

    def cut(self, node: str, other: str | None = None, *, one_way: bool = False) -> None:
        """Cut a node off: frames vanish, and neither end is told.

        Args:
            node: A host, or ``controller``.
            other: From whom; None: from everybody.
            one_way: Whether only what ``node`` sends is lost.
        """
        with self._changing() as state:
            state.plan.index(node)
            others = [each for each in state.plan.nodes if each != node]
            if other is not None:
                state.plan.index(other)
                others = [other]
            if other == node:
                raise ConfigError(f"{node} cannot be cut off from itself")
            new = [(node, each) for each in others]
            new += [] if one_way else [(each, node) for each in others]
            cuts = tuple(dict.fromkeys((*state.plan.cuts, *new)))
            self._follow_rules(changed(state, cuts=cuts))

    def heal(self, node: str | None = None, other: str | None = None) -> None:
        """Mend cuts: between two nodes, all of one node, or with no names all cuts and links."""
        with self._changing() as state:
            named = {each for each in (node, other) if each is not None}
            for name in named:
                state.plan.index(name)
            cuts = tuple(cut for cut in state.plan.cuts if not named <= set(cut))
            new = changed(state, cuts=cuts)
            for name in () if named else tuple(state.plan.links):
                new = self._follow_link(new, name, Link())
            self._follow_rules(new)

    def link(self, node: str, link: Link | None = None) -> None:
        """Give a node's way to the switch a quality; without one, a perfect one."""
        with self._changing() as state:
            state.plan.index(node)
            self._follow_rules(self._follow_link(state, node, link or Link()))

    def crash(self, host: str) -> None:
        """End all processes of a host at once; to the others it falls silent."""
        with self._changing() as state:
            _must_be_host(state.plan, host)
            crashed = tuple(dict.fromkeys((*state.crashed, host)))
            new = dataclasses.replace(state, crashed=crashed)
            self._folder.write(new)
            self._works.crash(new, host)

    def start(self, host: str) -> None:
        """Start a host that is down, or its agent where that has ended."""
        with self._changing() as state:
            _must_be_host(state.plan, host)
            left = tuple(each for each in state.crashed if each != host)
            new = dataclasses.replace(state, crashed=left)
            if host in state.crashed or self._node(host).pid is None:
                self._works.start(new, host)
                self._folder.write(new)
            self._works.start_agents(new, (host,))
            self._works.settle(host)

    def popen(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process inside a host; it is the caller's to wait for, and dies in a crash.

        Args:
            node: The host; for ``controller`` the process runs where we are.
            argv: Its command.
            options: Those of ``subprocess.Popen``.
        """
        self.plan.index(node)
        inside = [] if node == CONTROLLER else self._node(node).enter()
        return subprocess.Popen([*inside, *argv], **options)

    @contextmanager
    def _changing(self) -> Iterator[LabState]:
        """Hold the lab and yield its state; whoever changes the state also writes it."""
        check_ground()
        self._state()  # before a folder is made by the lock
        with self._folder.held():
            yield self._state()

    def _follow_rules(self, state: LabState) -> None:
        self._folder.write(state)
        self._works.apply_rules(state)

    def _follow_link(self, state: LabState, node: str, link: Link) -> LabState:
        state = with_link(state, node, link)
        self._folder.write(state)
        if node not in state.crashed:
            self._works.shape(state, node)
        return state

    # -- how it is -------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        """Tell whether there is anything of the lab, whole or not."""
        return self._folder.exists

    @property
    def plan(self) -> LabPlan:
        """The lab as it shall be."""
        return self._state().plan

    @property
    def kernel(self) -> frozenset[str]:
        """What the kernel can do to links by itself: some of ``lab_links.KINDS``."""
        return frozenset(self._state().kernel)

    @property
    def secret_path(self) -> Path:
        """Where the hosts' secret is."""
        return self._folder.secret_path

    def status(self) -> LabStatus:
        """Return how the lab is."""
        state = self._state()
        plan, switch = state.plan, self._node(SWITCH)
        hosts = tuple(self._host_status(plan, host) for host in plan.hosts)
        secret = str(self.secret_path)
        pid = switch.pid
        if pid is None or not state.is_complete:
            what = (
                "its switch is gone" if pid is None else "it is not whole, if it is not built now"
            )
            to_do = f"danaus lab down --name {self.name}, then up"
            return LabStatus(plan, hosts, (f"{what}: {to_do}",), {}, secret)
        counts = dropped(carry_out(LIST_COMMAND, pid=pid))
        problems = relay_problems(self._works.relays(state), switch.running())
        return LabStatus(plan, hosts, problems, counts, secret)

    def log_path(self, node: str) -> Path:
        """Return the file that a node's processes write to."""
        return self._node(node).folder / "log"

    def run_dir(self, host: str) -> Path:
        """Return the folder that a host's agent is given; a crash leaves it."""
        return self._node(host).folder / "run"

    def pid(self, node: str) -> int | None:
        """Return the pid of a host's first process, None while it is down."""
        return self._node(node).pid

    def agent_pid(self, host: str) -> int | None:
        """Return the pid, as seen from here, of a host's agent; None if it does not run."""
        return self._node(host).pid_of("agent")

    def _host_status(self, plan: LabPlan, host: str) -> HostStatus:
        node = self._node(host)
        addresses = tuple(
            f"{plan.ipv4(host, network)} {plan.ipv6_of(host, network)}" for network in plan.networks
        )
        return HostStatus(host, addresses, node.pid is not None, agent_words(node.running()))

    def _node(self, name: str) -> Node:
        return self._works.node(name)

    def _state(self) -> LabState:
        if not self._folder.exists:
            there = ", ".join(labs_there(self._folder.labs)) or "none"
            raise ConfigError(
                f"there is no lab {self.name}",
                f"labs here: {there}",
                f"danaus lab up --name {self.name}",
            )
        state = self._folder.read()
        if state is None:
            to_do = f"danaus lab down --name {self.name}"
            raise ConfigError(f"lab {self.name} is half built, or half taken down", to_do=to_do)
        return state


def _must_be_host(plan: LabPlan, name: str) -> None:
    plan.index(name)
    if name == CONTROLLER:
        raise ConfigError("the controller is this machine: it cannot crash or start", "name a host")
