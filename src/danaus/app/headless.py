"""A run's controller that nobody looks at: started by the watchdog, it goes on with the run.

``python -m danaus.app.headless RUN``.  What a terminal would show goes to ``logs/controller.log``.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from danaus.app.experiment import RunOrder
from danaus.app.launch import run_training
from danaus.app.progress import run_console
from danaus.app.run_folder import RunFolder
from danaus.app.settings import as_it_runs
from danaus.core.errors import DanausError


def main() -> None:
    """Go on with the run whose folder the only argument names."""
    try:
        folder = RunFolder.open(Path(sys.argv[1]))
        settings = dataclasses.replace(as_it_runs(folder), run_dir=folder.path)
        order = RunOrder(folder.path, settings, text="as before", resume=True)
        code = run_training(order, console=run_console())
    except DanausError as error:
        sys.stderr.write(f"danaus: {error}\n")
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
