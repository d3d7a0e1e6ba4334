"""How another process of ours is started from this one's Python, wherever the package lies.

Owns the command for it, and whether a process may be copied instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

MAY_FORK = hasattr(os, "fork") and sys.platform != "darwin"
"""Whether a process that has imported much may be copied, and the copy used like any other.

Not on macOS: what Apple's libraries (dispatch queues, which numerical libraries run on there, the
Objective-C runtime, the look-up of names and proxies) set up in a process does not survive in a
copy of it, which hangs or is aborted when it uses them.  No care of ours avoids it: importing is
enough.  Python's own ``multiprocessing`` copies no processes there for the same reason.
"""

_BEGIN = "import sys; sys.path.insert(0, "
_ROOT = str(Path(__file__).parents[2])


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``main()`` of ``module`` with ``arguments`` in ``sys.argv``."""
    code = f"{_BEGIN}{_ROOT!r}); from {module} import main; main()"
    return [sys.executable, "-c", code, *arguments]


def module_of(words: Sequence[str]) -> str:
    """Return the module that a command line made by ``command`` runs; empty: it is another's."""
    code = next((word for word in words if word.startswith(_BEGIN)), "")
    return code.partition("; from ")[2].partition(" import main")[0]
