"""How another process of ours is started from this one's Python, wherever the package lies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

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
