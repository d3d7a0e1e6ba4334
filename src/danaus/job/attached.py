"""Hosts that wait to be joined (``danaus host``), on this machine or on others.

The protocol is ``LocalJob``'s: apply, state, replace, kill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from danaus.actor.adopting import Takeover
from danaus.actor.attached_host import HostTerms
from danaus.actor.attaching import AttachedHosts
from danaus.actor.mesh import HostMesh
from danaus.core.errors import ConfigError
from danaus.job.local import JobState, takeover_of
from danaus.wire.address import Address


class AttachedJob:
    """A job on hosts that somebody has started.

    Args:
        hosts: Where they wait, as in ``tcp:10.0.0.7:4500``.
        terms: What is asked of them.
        on_cut_off: Told when no machine of the job answers any more, and when one does again.

    Attributes:
        adopts: Whether what an earlier controller of the same run folder has left goes on, where
            the job is detached; else it is ended; set it before ``apply``.

    Raises:
        AddressRefused: An address is none.
        ConfigError: There are none.
    """

    adopts: bool = True

    def __init__(
        self,
        hosts: Sequence[str],
        terms: HostTerms,
        *,
        on_cut_off: Callable[[bool], None] = lambda _: None,
    ) -> None:
        if not hosts:
            raise ConfigError(what="a job of 0 hosts", needed="at least 1")
        self._addresses = tuple(Address.parse(each) for each in hosts)
        self._terms, self._on_cut_off = terms, on_cut_off
        self._attached: AttachedHosts | None = None
        self._takeover: Takeover | None = None

    def apply(self) -> Self:
        """Join the hosts; returns once an agent listens on each.

        Raises:
            ConfigError: Not all could be joined: which not, and why; those that were wait again.
            AddressRefused: There is no route to them, or the address to listen at is none of ours.
        """
        if self._attached is None:
            self._takeover = self._new_takeover()
            attached = AttachedHosts(self._addresses, self._terms, takeover=self._takeover)
            attached.on_cut_off = self._on_cut_off
            attached.join()
            self._attached = attached
        return self

    def state(self) -> JobState:
        """Return the job's meshes.

        Raises:
            ConfigError: ``apply`` was not called.
        """
        return JobState.of(self._joined().refs, self._takeover)

    def _new_takeover(self) -> Takeover | None:
        if self._terms.run_dir is None:
            return None
        takeover = takeover_of(self._terms.run_dir, detached=self._terms.detached)
        if takeover is not None and not self.adopts:
            takeover.forget()
        return takeover

    @property
    def takeover(self) -> Takeover | None:
        """What an earlier controller has left, where the job is detached."""
        return self._takeover

    @property
    def missing(self) -> dict[int, str]:
        """Why a host could not be joined, by rank, where what lives on others was adopted."""
        return self._joined().missing

    def agent_pids(self) -> dict[str, int]:
        """Return the pid of each host's agent, on its own machine."""
        return self._attached.agent_pids if self._attached is not None else {}

    def replace(self, mesh: str, host: int) -> HostMesh:
        """Join a host again that was lost; what it still has of this job is ended first (Q-7).

        References to processes that were there end in ``SupervisionError``.

        Args:
            mesh: Name of the mesh in ``state()``: ``hosts``.
            host: Its rank there.

        Returns:
            The host, as a mesh without axes.

        Raises:
            AddressRefused: Which address was tried, and why it failed; it may be tried again.
            ConfigError: There is no such mesh.
        """
        if mesh != "hosts":
            raise ConfigError(what=f"no mesh {mesh!r} in this job", needed="hosts")
        self._joined().join_again(host)
        return self.state().hosts.slice(hosts=host)

    def kill(self) -> None:
        """End all of this job on every host that is reached; safe to call twice.

        The hosts wait to be joined again.  One that is not reached ends what it has once it finds
        that this program has ended.
        """
        attached, self._attached, self._takeover = self._attached, None, None
        if attached is not None:
            attached.leave()

    def let_go(self) -> None:
        """End what was begun here; what an earlier controller has left goes on, for a later."""
        attached, self._attached, self._takeover = self._attached, None, None
        if attached is not None:
            attached.leave(keep_left=True)

    def __enter__(self) -> Self:
        return self.apply()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _joined(self) -> AttachedHosts:
        if self._attached is None:
            raise ConfigError(what="state() of a job that does not run", to_do="call apply() first")
        return self._attached
