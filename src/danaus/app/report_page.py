"""The looks of a report: one HTML file that needs nothing beside it.

Owns the page's frame, style and the four things a report is made of: tiles, tables, folds and
lines.  Everything that is shown is escaped here.  It reads on a phone and in the dark.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tile:
    """One fact, large.  ``good`` colours it: None neither way."""

    label: str
    value: str
    wide: bool = False
    good: bool | None = None


@dataclass(frozen=True)
class Fold:
    """Lines under a heading that opens when it is touched."""

    heading: str
    lines: list[str]


@dataclass(frozen=True)
class Block:
    """A part of the page; the first row of ``table`` is its head."""

    heading: str
    tiles: list[Tile] = field(default_factory=list)
    table: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)


def page(
    title: str, lead: str, *, pictures: tuple[bytes, bytes] | None, blocks: Sequence[Block]
) -> str:
    """Return the page.

    Args:
        title: Heading.
        lead: A sentence under it.
        pictures: PNGs for light and for dark screens.
        blocks: In order; the picture stands after the first.
    """
    first, *rest = [_block(b) for b in blocks] or [""]
    shown = _picture(*pictures, title) if pictures else ""
    body = "\n".join(
        (f"<h1>{html.escape(title)}</h1>", f"<p class=lead>{html.escape(lead)}</p>", first, shown)
    )
    return _FRAME.format(title=html.escape(title), style=_STYLE, body="\n".join((body, *rest)))


def _picture(light: bytes, dark: bytes, title: str) -> str:
    words = f"Loss over steps and members over time of {title}, faults marked"
    return (
        '<div class=wide><picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="{_inline(dark)}"><img src="{_inline(light)}" alt="{html.escape(words)}">'
        "</picture></div>"
    )


def _inline(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _block(block: Block) -> str:
    parts = [f"<h2>{html.escape(block.heading)}</h2>"] if block.heading else []
    if block.tiles:
        parts.append(f"<div class=tiles>{''.join(map(_tile, block.tiles))}</div>")
    if block.table:
        parts.append(_table(block.table))
    if block.lines:
        parts.append(_lines(block.lines))
    parts += map(_fold, block.folds)
    return f"<section>{''.join(parts)}</section>"


def _tile(tile: Tile) -> str:
    kind = "" if tile.good is None else " good" if tile.good else " bad"
    kind += " across" if tile.wide else ""
    return (
        f'<div class="tile{kind}"><b>{html.escape(tile.value)}</b>'
        f"<span>{html.escape(tile.label)}</span></div>"
    )


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in rows[1:]
    )
    return (
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _fold(fold: Fold) -> str:
    return f"<details><summary>{html.escape(fold.heading)}</summary>{_lines(fold.lines)}</details>"


def _lines(lines: Sequence[str]) -> str:
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · danaus</title>
<style>{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""

_STYLE = """
:root { --paper: #ffffff; --ink: #1c1f24; --faint: #667085; --line: #e7eaee; --soft: #f6f7f9;
  --good: #1c7c54; --bad: #c0343f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --ink: #e8eaed; --faint: #98a2b3;
  --line: #272c34; --soft: #1b1f26; --good: #57c793; --bad: #ff7b84; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2.25rem 0 .6rem; }
.lead { color: var(--faint); margin: .25rem 0 1.5rem; }
.tiles { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); }
.tile { background: var(--soft); border-radius: .5rem; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.tile span { color: var(--faint); font-size: .82rem; }
.tile.across { grid-column: 1 / -1; }
.tile.across b { font-size: 1.02rem; }
.tile.good b { color: var(--good); } .tile.bad b { color: var(--bad); }
.wide { overflow-x: auto; margin: 1rem 0; }
img { display: block; width: 100%; min-width: 40rem; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--faint); font-weight: 500; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .5rem 0; font-size: .92rem; }
pre { margin: .3rem 0 1rem; padding: .8rem; background: var(--soft); border-radius: .5rem;
  overflow-x: auto; font: .8rem/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
"""
