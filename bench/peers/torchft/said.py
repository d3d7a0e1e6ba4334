"""How these programs speak: facts as lines of JSON; they end with their standard input."""

from __future__ import annotations

import json
import os
import sys
import threading


def end_with_input() -> None:
    """End this program once its input ends, whatever else it does."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def say(**facts: object) -> None:
    """Write one line of facts, whole."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def leave() -> None:
    """End at once: servers of theirs keep threads that nothing else ends."""
    os._exit(0)
