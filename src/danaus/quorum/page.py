"""The page of a candidate: what it knows, for a person, on any screen.

Owns its looks.  One page without anything beside it, made here for each request; all that is shown
is escaped.  It loads itself anew every few seconds.
"""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Mapping
from typing import Any

from danaus.core.errors import AddressRefused
from danaus.quorum.lighthouse_status import LighthouseStatus
from danaus.quorum.status import ProcessStatus, QuorumStatus
from danaus.wire.address import Address

AGAIN_EVERY_S = 2
_UNTOLD = ("at", "event", "reason")

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#888;--good:#2a7d46;--bad:#b3261e}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:62rem;padding:1rem}
h1{font-size:1.3rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
p{margin:.3rem 0}.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.tiles{display:flex;flex-wrap:wrap;gap:.5rem;margin:.8rem 0}
.tile{border:1px solid var(--line);border-radius:.5rem;padding:.4rem .7rem;min-width:5.5rem}
.tile b{display:block;font-size:1.15rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);
vertical-align:top}td.n{font-variant-numeric:tabular-nums;white-space:nowrap}
@media(prefers-color-scheme:dark){:root{--good:#6fcf8f;--bad:#ff8a80}}
"""


def page(status: LighthouseStatus) -> str:
    """Return the page as HTML."""
    body = [f"<h1>danaus lighthouse <span class={_mood(status)}>{_text(status.turn)}</span></h1>"]
    body += [f"<p class=soft>{_text(status.address)}, up for {status.up_s:.0f} s</p>"]
    if status.lease is not None and status.turn != "leads":
        leader = status.lease.address or "nobody that is known"
        body.append(f"<p>The leader is {_text(leader)}.</p>")
    if status.lease is not None and status.lease.trouble:
        body.append(f"<p class=bad>The lease cannot be asked: {_text(status.lease.trouble)}</p>")
    if status.quorum is not None:
        body += _quorum(status, status.quorum)
    body += _decisions(status.decisions)
    return _frame("".join(body))


def _mood(status: LighthouseStatus) -> str:
    return {"leads": "good", "stands by": "soft"}.get(status.turn, "bad")


def _frame(body: str) -> str:
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<meta http-equiv=refresh content={AGAIN_EVERY_S}><title>danaus lighthouse</title>"
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _quorum(status: LighthouseStatus, quorum: QuorumStatus) -> list[str]:
    tiles = {
        "epoch": quorum.epoch or "none",
        "members": str(quorum.num_members),
        "learners": str(quorum.num_learners),
        "asking": str(quorum.num_asking),
        "step": str(max((p.step for p in quorum.processes if p.role == "member"), default=0)),
    }
    if status.lease is not None:
        tiles["term of the lease"] = str(status.lease.term)
    shown = "".join(f"<div class=tile>{_text(k)}<b>{_text(v)}</b></div>" for k, v in tiles.items())
    return [
        f"<div class=tiles>{shown}</div>",
        *_said(quorum),
        "<h2>Processes</h2>",
        _table(
            ("replica", "rank", "life", "is", "step", "heard", "host", ""),
            (_row(process) for process in quorum.processes),
        ),
    ]


def _said(quorum: QuorumStatus) -> list[str]:
    """Say what the quorum is, and what the next one waits for (Q-8)."""
    lines = []
    if quorum.stopped:
        lines.append(f"<p class=bad>The run is stopped: {_text(quorum.stopped)}</p>")
    if quorum.finished:
        lines.append("<p class=good>The run is done.</p>")
    if quorum.hold:
        lines.append("<p>The members wait at a boundary for learners.</p>")
    if quorum.change:
        lines.append(f"<p>A change is coming: {_text(quorum.change)}</p>")
    lines += [f"<p>Some wait: {_text(reason)}</p>" for reason in quorum.waiting]
    if not quorum.epoch and not quorum.waiting:
        lines.append("<p class=soft>There is no quorum, and nobody asks for one.</p>")
    if quorum.reason:
        lines.append(f"<p class=soft>Epoch {quorum.epoch}: {_text(quorum.reason)}</p>")
    return lines


def _row(process: ProcessStatus) -> tuple[str, ...]:
    asks = ", asks" if process.asks and process.role != "asks" else ""
    step = f"{process.step} {process.phase}".strip()
    return (
        process.replica,
        str(process.rank),
        str(process.incarnation),
        f"{process.role}{asks}",
        step,
        "" if process.role == "dead" else f"{process.silent_s:.1f} s ago",
        _host(process),
        process.note,
    )


def _host(process: ProcessStatus) -> str:
    """Return the machine of a process, as far as its addresses tell."""
    for text in (process.agent_address, process.data_address):
        try:
            address = Address.parse(text)
        except AddressRefused:
            continue
        return address.host or "this machine"
    return ""


def _decisions(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [_decision(line) for line in reversed(tuple(lines))]
    return ["<h2>Last decisions</h2>", _table(("UTC", "what", "why"), rows)] if rows else []


def _decision(line: Mapping[str, Any]) -> tuple[str, ...]:
    at = dt.datetime.fromtimestamp(float(line["at"]), dt.UTC)
    event = str(line["event"]).removeprefix("quorum_").replace("_", " ")
    facts = {name: fact for name, fact in line.items() if name not in _UNTOLD and fact}
    told = ", ".join(f"{name} {_fact(fact)}" for name, fact in facts.items())
    why = str(line.get("reason", ""))
    return f"{at:%H:%M:%S}", event, f"{why} ({told})" if why and told else why or told


def _fact(fact: Any) -> str:
    return " ".join(map(str, fact)) if isinstance(fact, list | tuple) else str(fact)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td class=n>{_text(cell)}</td>' for cell in row[:-1])}"
        f"<td>{_text(row[-1])}</td></tr>"
        for row in rows
    )
    return f"<div class=wide><table><tr>{top}</tr>{body}</table></div>"


def _text(text: str) -> str:
    return html.escape(text)
