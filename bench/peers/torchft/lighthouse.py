"""The lighthouse as a process of its own.

Usage: lighthouse.py MIN_REPLICAS PORT TUNING   PORT 0: any; says where it listens.
"""

from __future__ import annotations

import socket
import sys
import threading

from said import end_with_input, say
from torchft.coordination import LighthouseServer

TUNED = {"heartbeat_timeout_ms": 1000, "join_timeout_ms": 1000, "quorum_tick_ms": 20}


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket(socket.AF_INET6) as bound:
        bound.bind(("::", 0))
        return int(bound.getsockname()[1])


def main() -> None:
    """Serve until the input ends."""
    least, port, tuning = int(sys.argv[1]), int(sys.argv[2]) or free_port(), sys.argv[3]
    end_with_input()
    limits = TUNED if tuning == "tuned" else {}
    server = LighthouseServer(bind=f"[::]:{port}", min_replicas=least, **limits)
    say(address=server.address(), port=port)
    threading.Event().wait()


if __name__ == "__main__":
    main()
