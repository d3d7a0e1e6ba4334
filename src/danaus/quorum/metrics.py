"""A candidate's state as Prometheus reads it: the text format, version 0.0.4.

Owns names, units and types.  Names end in their unit; what only grows ends in ``_total``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from danaus.quorum.lighthouse_status import LighthouseStatus
from danaus.quorum.status import ProcessStatus, QuorumStatus

KIND = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]


def metrics_text(status: LighthouseStatus) -> str:
    """Return all metrics."""
    return "\n".join(_lines(status)) + "\n"


def _lines(status: LighthouseStatus) -> Iterator[str]:
    leads = float(status.turn == "leads")
    info = {"version": status.version, "address": status.address}
    yield from _metric("lighthouse_info", "Always 1.", [(info, 1.0)])
    yield from _one("lighthouse_leads", "Whether this candidate is certain that it leads.", leads)
    yield from _one("lighthouse_uptime_seconds", "For how long this process runs.", status.up_s)
    yield from _one(
        "lighthouse_sessions", "Processes that are connected.", float(status.num_sessions)
    )
    yield from _metric(
        "lighthouse_decisions_total",
        "What was decided or heard, by event.",
        [({"event": name}, float(count)) for name, count in sorted(status.counts.items())],
    )
    if status.lease is not None:
        yield from _one("lighthouse_lease_term", "Term of the lease.", float(status.lease.term))
        yield from _one(
            "lighthouse_lease_remaining_seconds",
            "For how long this candidate is still certain to lead.",
            status.lease.remaining_s,
        )
    if status.quorum is not None:
        yield from _quorum(status.quorum)


def _quorum(quorum: QuorumStatus) -> Iterator[str]:
    facts = {
        "quorum_epoch_term": ("Term of the standing quorum's epoch.", quorum.term),
        "quorum_epoch_number": ("Number of the standing quorum's epoch.", quorum.number),
        "quorum_members": ("Processes in the standing quorum.", quorum.num_members),
        "quorum_learners": ("Processes that learn its state.", quorum.num_learners),
        "quorum_asking": ("Processes that ask for the next quorum.", quorum.num_asking),
        "quorum_waits": ("Whether some that ask are told to wait.", bool(quorum.waiting)),
        "quorum_change_pending": (
            "Whether the membership is about to change.",
            bool(quorum.change),
        ),
        "quorum_min_replicas": ("Replicas without which no step is taken.", quorum.min_replicas),
        "quorum_finished": ("Whether the run is done.", quorum.finished),
    }
    for name, (about, value) in facts.items():
        yield from _one(name, about, float(value))
    living = [each for each in quorum.processes if each.role != "dead"]
    steps = [(_labels(each), float(each.step)) for each in living]
    yield from _metric("replica_step", "The step that a process has come to.", steps)
    slow = [(_labels(each), float(each.is_slow)) for each in living]
    yield from _metric(
        "replica_is_slow", "Whether a process is persistently slower than the others.", slow
    )
    silence = [(_labels(each), each.silent_s) for each in living]
    yield from _metric(
        "replica_silence_seconds", "Since when nothing was heard of a process.", silence
    )


def _labels(process: ProcessStatus) -> dict[str, str]:
    return {
        "replica": process.replica,
        "rank": str(process.rank),
        "incarnation": str(process.incarnation),
        "role": process.role,
    }


def _one(name: str, about: str, value: float) -> Iterator[str]:
    return _metric(name, about, [({}, value)])


def _metric(name: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    name = f"danaus_{name}"
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{inside}}} {value:.15g}" if inside else f"{name} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
