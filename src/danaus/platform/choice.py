"""Which kind of device a process computes on, and why (G-1).

Owns ``PlatformConfig``, the ``Platform`` protocol and ``choose``.  A backend is a module of this
room, loaded by name at first use, so that nothing above ever spells a vendor (G-2).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from danaus.core.errors import ConfigError, DependencyMissing, DeviceUnavailable

if TYPE_CHECKING:
    import torch

TORCH_INSTALL = 'pip install "danaus[cpu]" (or your vendor\'s build of torch)'
TORCH_NEEDED = (2, 9)
_BACKENDS = {"cpu": "danaus.platform.cpu"}
_KINDS = ("auto", "cpu", "cuda", "rocm")


@dataclass(frozen=True, kw_only=True)
class PlatformConfig:
    """How a worker uses its device.

    Args:
        device: ``auto``, or the one kind to use: ``cpu``, ``cuda``, ``rocm``.
        num_threads: Compute threads per worker process; part of what fixes the bits (T-4).
        deterministic: Refuse kernels whose result depends on timing.
    """

    device: str = "auto"
    num_threads: int = 1
    deterministic: bool = True

    def __post_init__(self) -> None:
        if self.device not in _KINDS:
            raise ConfigError(f"platform.device is {self.device!r}", f"one of {', '.join(_KINDS)}")
        if self.num_threads < 1:
            raise ConfigError(f"platform.num_threads is {self.num_threads}", "at least 1")


class Platform(Protocol):
    """One kind of device, behind names that fit all of them."""

    @property
    def kind(self) -> str:
        """The neutral name: ``cpu``, ``cuda``, ``rocm``."""
        ...

    def device(self, local_rank: int) -> torch.device:
        """Return the device of the ``local_rank``-th worker of this host."""
        ...

    def pin(self, config: PlatformConfig) -> None:
        """Fix, for this process, what the bits depend on: threads, kernels (T-4)."""
        ...

    def environment(self) -> dict[str, str]:
        """Return what the bits depend on, in words, for the ledger (T-4)."""
        ...


@dataclass(frozen=True)
class Choice:
    """The platform that was chosen, and the reason in words."""

    platform: Platform
    reason: str


def choose(config: PlatformConfig) -> Choice:
    """Choose the platform to compute on.

    Raises:
        DependencyMissing: torch is not installed or too old.
        DeviceUnavailable: The wanted kind cannot be had.
    """
    require_torch("training")
    wanted = config.device
    if wanted not in ("auto", *_BACKENDS):
        raise DeviceUnavailable(kind=wanted, looked_for=f"a danaus backend named {wanted}")
    kind = "cpu" if wanted == "auto" else wanted
    module = import_module(_BACKENDS[kind])
    platform: Platform = module.open_platform()
    if wanted == "auto":
        return Choice(platform, "auto: the CPU is the only kind this version computes on")
    return Choice(platform, f"platform.device = {wanted}")


def require_torch(needed_for: str) -> None:
    """Check that a usable torch is installed.

    Raises:
        DependencyMissing: It is not, or older than 2.9; names the line that installs it.
    """
    try:
        import_module("torch")
    except (ImportError, OSError) as error:
        there = not isinstance(error, ModuleNotFoundError) or error.name != "torch"
        raise DependencyMissing(
            library="torch",
            needed_for=needed_for,
            install=TORCH_INSTALL,
            found=f"installed but cannot be loaded ({error})" if there else "not installed",
        ) from error
    version = str(import_module("torch.version").__version__)
    if not new_enough(version):
        raise DependencyMissing(
            library="torch",
            needed_for=needed_for,
            install=TORCH_INSTALL,
            found=f"{version}, older than {TORCH_NEEDED[0]}.{TORCH_NEEDED[1]}",
        )


def new_enough(version: str) -> bool:
    """Tell whether a torch of this version can be used."""
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) >= TORCH_NEEDED
