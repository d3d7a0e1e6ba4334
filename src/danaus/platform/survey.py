"""What this machine has to compute with, told without touching a device.

Owns ``survey``; it never fails: what is not there is a fact too (G-3).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from danaus.platform.choice import TORCH_INSTALL, TORCH_NEEDED, new_enough, torch_is_there


@dataclass(frozen=True)
class TorchFacts:
    """The torch that is installed.

    Args:
        version: Its version; empty if it is not installed.
        build: What it was built for, in words.
        collectives: Libraries for collectives that are in it.
        devices: Each device it sees, in words.
        problem: Why training cannot run with it; empty if it can.
        install: The line that would mend it; empty if nothing is to be mended.
    """

    version: str = ""
    build: str = ""
    collectives: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    problem: str = ""
    install: str = ""


def survey() -> TorchFacts:
    """Look at the installed torch and the devices it sees."""
    if not torch_is_there():
        return TorchFacts(problem="torch is not installed", install=TORCH_INSTALL)
    try:
        torch = import_module("torch")
    except (ImportError, OSError) as error:
        return TorchFacts(problem=f"torch cannot be loaded: {error}", install=TORCH_INSTALL)
    version = str(torch.__version__)
    if not new_enough(version):
        needed = ".".join(map(str, TORCH_NEEDED))
        return TorchFacts(
            version, problem=f"torch {version} is older than {needed}", install=TORCH_INSTALL
        )
    dist = torch.distributed
    with_collectives = dist.is_available()
    collectives = tuple(
        name
        for name, there in (
            ("Gloo", with_collectives and dist.is_gloo_available()),
            (
                "RCCL" if torch.version.hip else "NCCL",
                with_collectives and dist.is_nccl_available(),
            ),
        )
        if there
    )
    return TorchFacts(
        version=version,
        build=_build(torch),
        collectives=collectives,
        devices=_devices(torch),
        problem="" if "Gloo" in collectives else "this torch has no Gloo",
        install="" if "Gloo" in collectives else TORCH_INSTALL,
    )


def _build(torch: object) -> str:
    version = getattr(torch, "version", None)
    if hip := getattr(version, "hip", None):
        return f"ROCm {hip}"
    if cuda := getattr(version, "cuda", None):
        return f"CUDA {cuda}"
    return "CPU only"


def _devices(torch: object) -> tuple[str, ...]:
    cuda = torch.cuda  # type: ignore[attr-defined]
    if not cuda.is_available():
        return ()
    return tuple(cuda.get_device_name(i) for i in range(cuda.device_count()))
