"""Which addresses a lab may have, and whose a device of this machine is.

A lab's device in the machine's own network namespace carries the lab's name as its alias, so that
``ip link`` tells whose it is and ``down`` knows that it has gone.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from danaus.app.lab_plan import CONTROLLER, MAX_NETWORKS, NUM_LABS, LabPlan

_DEVICES = Path("/sys/class/net")


def free_numbers(routes: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the numbers whose networks this machine does not use otherwise.

    Args:
        routes: What ``ip -j -4 route show`` says.
    """
    used = [
        ipaddress.ip_network(route["dst"], strict=False)
        for route in routes
        if route["dst"] != "default"
    ]
    for number in range(1, NUM_LABS + 1):
        plan = LabPlan("any", number=number)
        own = [
            ipaddress.ip_network(f"{plan.ipv4(CONTROLLER, network)}/24", strict=False)
            for network in range(MAX_NETWORKS)
        ]
        if not any(mine.overlaps(other) for mine in own for other in used):
            yield number


def alias(folder: Path) -> str:
    """Return the alias of a lab's device; it is short and one word, wherever the folder lies."""
    return f"danaus-lab:{folder.name}:{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"


def taken_by(folder: Path, number: int | None) -> list[str]:
    """Return the devices in this network namespace that belong to the lab of a folder.

    Args:
        folder: The lab's.
        number: The lab's, if it is known: a device of that name that is nobody's yet is meant too.
    """
    found = []
    for device in _DEVICES.glob("dn*n*"):
        try:
            owner = (device / "ifalias").read_text().strip()
        except OSError:
            continue  # it has just gone
        unnamed = not owner and device.name.startswith(f"dn{number}n")
        if unnamed or owner == alias(folder):
            found.append(device.name)
    return found
