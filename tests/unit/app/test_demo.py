"""The training beside the demo."""

from __future__ import annotations

from pathlib import Path

from danaus.app.demo import reference_order
from danaus.app.run_folder import RunFolder
from danaus.app.settings import DemoConfig, saved


def test_a_busy_machine_is_no_reason_to_end_the_only_one_with_its_state(tmp_path: Path) -> None:
    settings = DemoConfig(run_dir=tmp_path / "run", hosts=("tcp:127.0.0.1:4500",))
    folder = RunFolder.create(tmp_path / "run", settings)
    order = reference_order(settings, folder, "words")
    folder.release()
    assert order.config == saved(RunFolder.open(order.run_dir))
    assert (order.config.replicas, order.config.hosts) == (1, settings.hosts)
    assert order.config.hang_limit_s is not None
    assert order.config.hang_limit_s > 100 * (settings.hang_limit_s or 0)
