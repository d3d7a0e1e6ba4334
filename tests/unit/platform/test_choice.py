"""G-1: the platform is chosen with a reason; what is missing is said in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from danaus.core.errors import DependencyMissing, DeviceUnavailable
from danaus.platform.choice import PlatformConfig, check, choose
from danaus.platform.cpu import processor_name


@pytest.fixture
def as_before() -> Iterator[None]:
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(mode)


def test_the_cpu_is_chosen_with_a_reason() -> None:
    found, forced = choose(PlatformConfig()), choose(PlatformConfig(device="cpu"))
    assert found.platform.kind == forced.platform.kind == "cpu"
    assert found.reason.startswith("auto: ")
    assert forced.reason == "platform.device = cpu"
    assert found.platform.device(3) == torch.device("cpu")


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_a_kind_that_cannot_be_had(kind: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"no {kind} device"):
        choose(PlatformConfig(device=kind))


@pytest.mark.usefixtures("as_before")
def test_pinning_fixes_what_the_environment_tells() -> None:
    platform = choose(PlatformConfig()).platform
    platform.pin(PlatformConfig(num_threads=1))
    facts = platform.environment()
    assert (facts["threads"], facts["deterministic"]) == ("1", "true")
    assert facts["torch"] == torch.__version__
    platform.pin(PlatformConfig(deterministic=False))
    assert platform.environment()["deterministic"] == "false"
    assert all(facts.values())


def test_without_torch_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DependencyMissing, match=r"not installed: training needs it; .*pip install"):
        check(PlatformConfig())


def test_a_torch_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("danaus.platform.choice.torch_version", lambda: "2.8.1+cpu")
    with pytest.raises(DependencyMissing, match=r"torch is 2\.8\.1\+cpu, older than 2\.9"):
        choose(PlatformConfig())


def test_the_processor_is_named_where_the_system_tells(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("vendor_id\t: X\nmodel name\t: Some Processor 9\n")
    assert processor_name(file) == "Some Processor 9"
    file.write_text("nothing\n")
    assert processor_name(file)
    assert processor_name(tmp_path / "missing")
