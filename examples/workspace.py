"""Code that changes here while workers run: they are sent what changed, and go on with it.

    python examples/workspace.py

On hosts of other machines it works the same: what they lack is sent over the connections that are
there.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from danaus.actor import Actor, endpoint, shutdown_context, this_host


class Worker(Actor):
    """Runs what the workspace has under a name."""

    @endpoint
    def score(self, k: int) -> int:
        """Score a number as the workspace says."""
        value: int = importlib.import_module("scoring").score(k)
        return value


def main() -> None:
    """Write a module, have workers use it, change it, have them use that."""
    procs = this_host().spawn_procs(per_host={"gpus": 2})
    workers = procs.spawn("worker", Worker)
    with tempfile.TemporaryDirectory() as folder:
        for factor in (2, 3):
            (Path(folder) / "scoring.py").write_text(f"def score(k): return {factor} * k\n")
            synced = procs.sync_workspace(folder).get()
            sent = sum(synced.sent_bytes.values())
            scores = list(workers.score.call(7).get().values())
            print(f"{sent} bytes sent, executed again: {synced.reloaded.get(0)}, scores {scores}")
    shutdown_context()
    print("all processes are gone")


if __name__ == "__main__":
    main()
