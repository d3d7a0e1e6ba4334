"""A lab for the time of a test: hosts with addresses of their own, joined, cut, slowed, crashed.

Owns ``Lab``, which is ``danaus.app.lab.Lab`` as a context manager: the hosts end with the test's
process, however that ends, and nothing is left behind.

    with Lab(hosts=3, folder=tmp_path) as lab:
        lab.cut("host1", "host2", one_way=True)
        with lab.socket("host1") as socket:
            ...

It needs root, iproute2 and nftables; ``missing()`` says what is not there.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from danaus.app import lab as standing
from danaus.app.lab import host_agent
from danaus.app.lab_plan import CONTROLLER, LabPlan, Link
from danaus.app.lab_tools import missing
from danaus.core.errors import SupervisionError

__all__ = ["CONTROLLER", "Lab", "Link", "host_agent", "missing"]

_CLONE_NEWNET = 0x40000000
_THREAD_S = 10.0


class Lab(standing.Lab):
    """A lab that is up inside a ``with`` block.

    Args:
        hosts: How many hosts: host1, host2, ...
        folder: Where its files go, such as ``tmp_path``.
        networks: How many networks join them, 1 or 2.
        agent: The command of each host, with ``{listen}``, ``{address}``, ``{port}``, ``{name}``,
            ``{secret}`` and ``{run_dir}`` left open; ``host_agent()`` is danaus' own.
            With a port or a place to listen, the lab is up once that is open.
        ipv6: Whether agents listen on IPv6.
    """

    def __init__(
        self,
        hosts: int,
        folder: Path,
        *,
        networks: int = 1,
        agent: Sequence[str] = (),
        ipv6: bool = False,
    ) -> None:
        name = f"test-{os.getpid()}-{secrets.token_hex(4)}"
        super().__init__(name, labs=folder, owned=True)
        self._plan = LabPlan(name, num_hosts=hosts, num_networks=networks, ipv6=ipv6)
        self._agent = tuple(agent)

    def __enter__(self) -> Self:
        self.up(self._plan, self._agent)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            problems = self.status().problems if self.is_there else ()
        finally:
            self.down()
        if problems and kind is None:
            raise SupervisionError(f"lab {self.name}", "; ".join(problems))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names."""
        return self._plan.hosts

    def address(self, node: str, network: int = 0, *, ipv6: bool = False) -> str:
        """Return a node's address."""
        plan = self.plan
        return plan.ipv6_of(node, network) if ipv6 else plan.ipv4(node, network)

    def listening(self, host: str) -> str:
        """Return where a host's agent listens, as danaus spells it: ``tcp:198.18.1.11:7200``."""
        return self.plan.listening(host)

    def dropped(self, rule: str) -> int:
        """Return how many frames a rule has dropped since cuts or links last changed.

        Args:
            rule: ``cut host1 host2``, ``lost from host1`` or ``lost to host1``.
        """
        return self.status().dropped.get(rule, 0)

    def socket(
        self,
        node: str,
        kind: socket.SocketKind = socket.SOCK_STREAM,
        *,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> socket.socket:
        """Return a socket of this process that is in a host's network; a crash leaves it silent."""
        if node == CONTROLLER:
            return socket.socket(family, kind)
        made: list[socket.socket] = []
        namespace = os.open(f"/proc/{self._node(node).living_pid()}/ns/net", os.O_RDONLY)

        def make() -> None:
            # A namespace is a thread's: this one's end is the way back.
            if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) == 0:
                made.append(socket.socket(family, kind))

        try:
            thread = threading.Thread(target=make, name=f"socket in {node}")
            thread.start()
            thread.join(_THREAD_S)
        finally:
            os.close(namespace)
        if not made:
            raise SupervisionError(node, "its network cannot be entered")
        return made[0]
