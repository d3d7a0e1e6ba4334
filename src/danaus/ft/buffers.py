"""Refuses a forward that changes a buffer nobody declared (T-2).

A discarded step must leave no trace, and a buffer that a forward changes would be one; it would
also differ between replicas, which see different samples.
"""

from __future__ import annotations

from torch import Tensor, nn

from danaus.core.errors import ConfigError


class BufferWatch:
    """Remember the buffers of ``network``; tell when one was changed or replaced.

    Args:
        network: The network, already built.
        scratch: Names of buffers that may change because no result depends on them; None: the
            caller has no way to name any.

    Raises:
        ConfigError: A declared name is no buffer of the network.
    """

    def __init__(self, network: nn.Module, scratch: frozenset[str] | None = None) -> None:
        self._network, self._scratch = network, scratch or frozenset()
        self._can_declare = scratch is not None
        self._modules: list[nn.Module] = []
        self._facts: list[int] = []
        names = {name for name, _ in network.named_buffers()}
        unknown = sorted(self._scratch - names)
        if unknown:
            raise ConfigError(
                f"scratch buffer {unknown[0]!r} is not in the network",
                f"one of {', '.join(sorted(names)) or '(it has no buffers)'}",
            )
        self.begin()

    def begin(self) -> None:
        """Watch from here on."""
        if self._modules and self._quick_look() == self._facts:
            return
        self._seen = self._look()
        self._modules = list(self._network.modules())
        self._facts = self._quick_look()

    def check(self) -> None:
        """Raise if an undeclared buffer changed since the watch began.

        Raises:
            ConfigError: Names the buffer.
        """
        if self._quick_look() == self._facts:
            return
        for name, (buffer, version) in self._look().items():
            if name not in self._seen:
                raise self._refusal(name, "appeared")
            before, version_before = self._seen[name]
            if buffer is not before:
                raise self._refusal(name, "was replaced")
            if version != version_before:
                raise self._refusal(name, "was changed")

    def _look(self) -> dict[str, tuple[Tensor, int]]:
        return {
            name: (buffer, buffer._version)
            for name, buffer in self._network.named_buffers()
            if name not in self._scratch
        }

    def _quick_look(self) -> list[int]:
        """Return what changes with any buffer, without its name: this is looked at all the time."""
        facts: list[int] = []
        for module in self._modules:
            facts.append(len(module._modules))
            for buffer in module._buffers.values():
                if buffer is not None:
                    facts += (id(buffer), buffer._version)
        return facts

    def _refusal(self, name: str, what: str) -> ConfigError:
        to_do = "make it a function of the step's inputs"
        return ConfigError(
            f"buffer {name} {what} during a forward",
            "a step that is discarded must leave no trace",
            f"{to_do}, or declare it in scratch_buffers" if self._can_declare else to_do,
        )
