"""What was struck, as lines of JSON: from them the same campaign is made again.

Owns the lines of a record and ``replay``.  The first line has the plan; then comes one line for
each fault before it strikes, and one for each that found nothing to hit.  A replay strikes the
same targets in the same steps and the same order; what lies between steps it cannot promise.  Pure.

=========== =====================================================================================
line        facts
=========== =====================================================================================
plan        record (the format's number), seed, faults (specs), hosts (of each replica), places
            (its number), ranks
fault       fault (its id), spec (resolved: target, step and every parameter), after_s (since the
            plan began)
missed      missed (the id), reason
=========== =====================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from danaus.app.chaos import FaultPlan, Fleet
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_spec import read, write
from danaus.core.errors import ConfigError

FORMAT = 1


def plan_line(plan: FaultPlan, fleet: Fleet) -> str:
    """Return the first line of a record."""
    return _line(
        record=FORMAT,
        seed=plan.seed,
        faults=list(plan.specs),
        hosts=list(fleet.hosts),
        places=list(fleet.places),
        ranks=fleet.num_ranks,
    )


def fault_line(fault: Fault, after_s: float) -> str:
    """Return the line of a resolved fault that is about to strike, so long after the beginning."""
    return _line(fault=fault.id, spec=write(fault), after_s=round(after_s, 3))


def missed_line(fault: Fault, reason: str) -> str:
    """Return the line of a fault that found nothing to hit."""
    return _line(missed=fault.id, reason=reason)


def replay(lines: Iterable[str]) -> FaultPlan:
    """Return the plan that strikes again what a record tells of.

    Args:
        lines: Of the record; a last one that was torn off is left out.

    Raises:
        ConfigError: It is not a record, or a line of it is damaged.
    """
    head, *found = [_parsed(line) for line in lines if line.strip()] or [{}]
    seed = head.get("seed")
    if head.get("record") != FORMAT or not isinstance(seed, int):
        raise ConfigError(
            what="this is not a record of faults",
            needed=f"its first line has no record={FORMAT} with a seed",
            to_do="records lie in a run's folder, under chaos/",
        )
    if found and not found[-1]:
        found.pop()  # its writer ended midway
    missed = {str(each.get("missed")) for each in found}
    struck = []
    for number, each in enumerate(found, 2):
        name, spec = each.get("fault"), each.get("spec")
        if "missed" not in each and not (isinstance(name, str) and isinstance(spec, str)):
            raise ConfigError(
                f"line {number} of the record is damaged", "a fault and its spec, or who missed"
            )
        if isinstance(spec, str) and name not in missed:
            struck.append(read(spec))
    return FaultPlan(tuple(struck), seed)


def _line(**facts: Any) -> str:
    return json.dumps(facts, separators=(",", ":")) + "\n"


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
