"""The CPU as a platform: threads, kernels, and what the bits depend on."""

from __future__ import annotations

import platform as machine
from pathlib import Path

import torch

from danaus.platform.choice import PlatformConfig


class CpuPlatform:
    """Compute on the host's own cores."""

    kind = "cpu"

    def device(self, local_rank: int) -> torch.device:
        """Return the one CPU device, whatever the rank."""
        return torch.device("cpu")

    def pin(self, config: PlatformConfig) -> None:
        """Fix thread counts and deterministic kernels for this process (T-4)."""
        torch.set_num_threads(config.num_threads)
        # Not use_deterministic_algorithms: that imports the compiler, a second per process.
        torch.set_deterministic_debug_mode("error" if config.deterministic else "default")
        # Filling fresh memory guards against reads of uninitialised values, which no kernel
        # used here makes; it costs a pass over every buffer.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def environment(self) -> dict[str, str]:
        """Return versions, processor, instruction set and thread count."""
        return {
            "platform": self.kind,
            "torch": str(torch.__version__),
            "python": machine.python_version(),
            "system": f"{machine.system()} {machine.machine()}",
            "processor": processor_name(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "blas": _blas(),
            "threads": str(torch.get_num_threads()),
            "deterministic": str(torch.are_deterministic_algorithms_enabled()).lower(),
        }


def open_platform() -> CpuPlatform:
    """Return the CPU; it is always there."""
    return CpuPlatform()


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's model name, ``unknown`` where the system does not tell."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return machine.processor() or "unknown"
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return machine.processor() or "unknown"


def _blas() -> str:
    return "mkl" if torch.backends.mkl.is_available() else "other"  # type: ignore[no-untyped-call]
