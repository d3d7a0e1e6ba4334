"""Which kind of device a process computes on, and why (G-1).

Owns ``PlatformConfig``, the ``Platform`` protocol and ``choose``.  A backend is a module of this
room, loaded by name at first use, so that nothing above ever spells a vendor (G-2).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
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
    """Choose the platform to compute on; loads torch.

    Raises:
        DependencyMissing: torch is not installed or too old.
        DeviceUnavailable: The wanted kind cannot be had.
    """
    kind = check(config)
    try:
        module = import_module(_BACKENDS[kind])
    except (ImportError, OSError) as error:
        found = f"installed but cannot be loaded ({error})"
        raise _missing(found) from error
    platform: Platform = module.open_platform()
    if config.device == "auto":
        return Choice(platform, "auto: the CPU is the only kind this version computes on")
    return Choice(platform, f"platform.device = {config.device}")


def check(config: PlatformConfig) -> str:
    """Return the kind of platform that would be chosen, as far as is seen without loading torch.

    Raises:
        DependencyMissing: torch is not installed, or older than 2.9; names the line that
            installs it.
        DeviceUnavailable: The wanted kind cannot be had.
    """
    if not torch_is_there():
        raise _missing("not installed")
    version = torch_version()
    if not new_enough(version):
        raise _missing(f"{version}, older than {TORCH_NEEDED[0]}.{TORCH_NEEDED[1]}")
    wanted = config.device
    if wanted not in ("auto", *_BACKENDS):
        raise DeviceUnavailable(kind=wanted, looked_for=f"a danaus backend named {wanted}")
    return "cpu" if wanted == "auto" else wanted


def torch_is_there() -> bool:
    """Tell whether there is a torch to load."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def torch_version() -> str:
    """Return the version of the torch that is there, from its metadata where it has such."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return str(import_module("torch.version").__version__)


def new_enough(version: str) -> bool:
    """Tell whether a version of torch will do."""
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) >= TORCH_NEEDED


def _missing(found: str) -> DependencyMissing:
    return DependencyMissing(
        library="torch", needed_for="training", install=TORCH_INSTALL, found=found
    )
