"""The picture of a run: loss over steps, members over time, each fault marked in both.

Owns ``draw``.  matplotlib is imported when a picture is drawn; it is drawn off screen (Agg) and
without pyplot, so that nothing global is left behind.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from danaus.app.fault_table import seconds
from danaus.app.run_record import RunRecord
from danaus.app.timeline import Fault, Span, State, faults, lanes, service_lane
from danaus.core.errors import DependencyMissing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NUMBERED = 24
_MOST_LISTED = 8
_WIDTH_IN = 11.0
_DPI = 160
_LOSS_IN = 3.5
_TALLEST_LANES_IN = 6.0
_LEFT, _WIDE = 0.115, 0.862
_SMALL, _MEDIUM, _LARGE = 8.5, 9.5, 14.0


@dataclass(frozen=True)
class Theme:
    """Colours of a picture."""

    paper: str
    ink: str
    faint: str
    grid: str
    run: str
    reference: str
    fault: str
    states: Mapping[State, str]


LIGHT = Theme(
    paper="#ffffff",
    ink="#1c1f24",
    faint="#667085",
    grid="#e7eaee",
    run="#d9480f",
    reference="#a9c1dd",
    fault="#1c1f24",
    states={
        "member": "#2f8f83",
        "learning": "#e8b04a",
        "starting": "#c9d0d9",
        "hung": "#8b5fbf",
        "down": "#d64550",
    },
)
DARK = Theme(
    paper="#14171c",
    ink="#e8eaed",
    faint="#98a2b3",
    grid="#272c34",
    run="#ff8a4c",
    reference="#42617f",
    fault="#e8eaed",
    states={
        "member": "#3aa798",
        "learning": "#e8b04a",
        "starting": "#4b5563",
        "hung": "#a584d6",
        "down": "#ef6a73",
    },
)
_STATE_WORDS: dict[State, str] = {
    "member": "member",
    "learning": "learning from a peer",
    "starting": "starting",
    "hung": "hung",
    "down": "down",
}


def draw(record: RunRecord, reference: RunRecord | None = None, *, theme: Theme = LIGHT) -> bytes:
    """Draw a run as a PNG.

    Args:
        record: The run.
        reference: The same training undisturbed, where there is one.
        theme: Colours.

    Returns:
        The PNG's bytes.

    Raises:
        DependencyMissing: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DependencyMissing(
            library="matplotlib",
            needed_for="the picture of a report",
            install="pip install 'danaus[train]'",
        ) from error
    told = faults(record)
    num_lanes = len(record.replicas) + bool(service_lane(record))
    lanes_in = max(0.8, min(_TALLEST_LANES_IN, 0.36 * num_lanes))
    list_in = 0.25 * min(len(told), _MOST_LISTED + 1)
    height_in = 0.95 + _LOSS_IN + 0.90 + lanes_in + 0.62 + list_in + 0.15
    figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI, facecolor=theme.paper)
    FigureCanvasAgg(figure)
    _title(figure, record, len(told), theme)
    loss_axes = _axes_at(figure, 0.95, _LOSS_IN)
    lane_axes = _axes_at(figure, 0.95 + _LOSS_IN + 0.90, lanes_in)
    _draw_loss(loss_axes, record, reference, theme)
    _draw_lanes(lane_axes, record, theme)
    _mark(loss_axes, [(f.step, str(f.number)) for f in told], theme)
    _mark(lane_axes, [(f.time - record.start, str(f.number)) for f in told], theme)
    _list_faults(figure, told, height_in - list_in - 0.15, theme)
    out = io.BytesIO()
    figure.savefig(out, format="png", facecolor=theme.paper)
    return out.getvalue()


def _axes_at(figure: Figure, top_in: float, tall_in: float) -> Axes:
    """Add axes over the picture's width, ``top_in`` inches under its upper edge."""
    height_in = figure.get_figheight()
    return figure.add_axes((_LEFT, 1 - (top_in + tall_in) / height_in, _WIDE, tall_in / height_in))


def _title(figure: Figure, record: RunRecord, num_faults: int, theme: Theme) -> None:
    height_in = figure.get_figheight()
    words = [
        f"{max(record.losses, default=0)} steps",
        f"{len(record.replicas)} replica{'' if len(record.replicas) == 1 else 's'}",
        f"{num_faults} fault{'' if num_faults == 1 else 's'}",
    ]
    y = 1 - 0.36 / height_in
    figure.text(_LEFT, y, record.name, color=theme.ink, size=_LARGE, weight="bold")
    y = 1 - 0.60 / height_in
    figure.text(_LEFT, y, "   ·   ".join(words), color=theme.faint, size=_MEDIUM)


def _dress(axes: Axes, theme: Theme) -> None:
    """Take off what says nothing: frame, ticks."""
    axes.set_facecolor(theme.paper)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(theme.grid)
    axes.tick_params(colors=theme.faint, labelsize=_SMALL, length=0)


def _draw_loss(axes: Axes, record: RunRecord, reference: RunRecord | None, theme: Theme) -> None:
    _dress(axes, theme)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    if reference is not None and reference.losses:
        steps, values = zip(*reference.losses.items(), strict=True)
        axes.plot(
            steps,
            values,
            color=theme.reference,
            linewidth=6.0,
            solid_capstyle="round",
            label="undisturbed",
        )
    if record.losses:
        steps, values = zip(*record.losses.items(), strict=True)
        axes.plot(steps, values, color=theme.run, linewidth=1.5, label="through the faults")
        axes.set_xlim(0, max(1, steps[-1]))
        _legend(axes, theme)
    else:
        _say(axes, "no step was committed", theme)
    axes.set_ylabel("loss, nats per token", color=theme.faint, size=_SMALL)
    axes.set_xlabel("step", color=theme.faint, size=_SMALL, loc="left")


def _legend(axes: Axes, theme: Theme) -> None:
    axes.legend(
        loc="upper right", frameon=False, fontsize=_MEDIUM, labelcolor=theme.ink, handlelength=1.6
    )


def _say(axes: Axes, words: str, theme: Theme) -> None:
    axes.text(
        0.5,
        0.5,
        words,
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=theme.faint,
        size=_MEDIUM,
    )


def _draw_lanes(axes: Axes, record: RunRecord, theme: Theme) -> None:
    _dress(axes, theme)
    shown = dict(lanes(record))
    if service := service_lane(record):
        shown["quorum service"] = service
    seen: set[State] = set()
    for row, (name, spans) in enumerate(shown.items()):
        thin = name == "quorum service"
        for span in spans:
            _draw_span(axes, row, span, record.start, theme, thin=thin)
            seen.add(span.state)
    every = 1 + int(len(shown) * 0.2 / _TALLEST_LANES_IN)
    axes.set_yticks(range(len(shown))[::every], list(shown)[::every])
    axes.tick_params(axis="y", labelsize=_MEDIUM, labelcolor=theme.ink)
    axes.set_ylim(len(shown) - 0.45, -0.55)
    axes.set_xlim(0, max(0.1, record.end - record.start))
    axes.set_xlabel("seconds since the start", color=theme.faint, size=_SMALL, loc="left")
    if shown:
        _name_states(axes, [s for s in _STATE_WORDS if s in seen], theme)
    else:
        _say(axes, "no replica was seen", theme)


def _draw_span(axes: Axes, row: int, span: Span, start: float, theme: Theme, *, thin: bool) -> None:
    """Draw a bar; a state of absence is a thin line, so that it reads as a gap."""
    tall = 0.16 if span.state == "down" else 0.30 if thin else 0.62
    axes.barh(
        row,
        span.end - span.start,
        left=span.start - start,
        height=tall,
        color=theme.states[span.state],
        linewidth=0,
    )


def _name_states(axes: Axes, states: Sequence[State], theme: Theme) -> None:
    """Name the colours in one line under the lanes, at the right, beside the axis' own name."""
    from matplotlib.patches import Patch

    box_in = _tall_in(axes)
    handles = [Patch(color=theme.states[s], label=_STATE_WORDS[s]) for s in states]
    axes.legend(
        handles=handles,
        loc="upper right",
        bbox_to_anchor=(1.0, -0.25 / box_in),
        ncols=len(handles),
        frameon=False,
        fontsize=_SMALL,
        labelcolor=theme.faint,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def _mark(axes: Axes, marks: Sequence[tuple[float, str]], theme: Theme) -> None:
    """Draw a dotted line at each mark, and its number in a disc above the axes."""
    low, high = axes.get_xlim()
    inside = [(min(max(x, low), high), number) for x, number in marks]
    for x, _ in inside:
        axes.axvline(x, color=theme.fault, linewidth=0.9, linestyle=(0, (1, 2)), alpha=0.65)
    if len(inside) > _MOST_NUMBERED:
        return
    places = spread([x for x, _ in inside], 0.021 * (high - low), low, high)
    box_in = _tall_in(axes)
    for (_, number), place in zip(inside, places, strict=True):
        axes.annotate(
            number,
            (place, 1 + 0.13 / box_in),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="center",
            size=7.5,
            weight="bold",
            color=theme.paper,
            bbox={"boxstyle": "circle,pad=0.28", "fc": theme.fault, "ec": "none"},
            annotation_clip=False,
        )


def _tall_in(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    return float(axes.get_position().height * (figure.get_figheight() if figure else 1.0))


def spread(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Move rising ``places`` until neighbours are ``least`` apart, within bounds if possible."""
    moved: list[float] = []
    for place in places:
        moved.append(place if not moved else max(place, moved[-1] + least))
    if moved and moved[-1] > high:
        limit = high
        for index in reversed(range(len(moved))):
            moved[index] = min(moved[index], limit)
            limit = moved[index] - least
    return [max(low, place) for place in moved]


def _list_faults(figure: Figure, told: Sequence[Fault], top_in: float, theme: Theme) -> None:
    """Write one line for each fault at the foot of the picture."""
    height_in = figure.get_figheight()
    for row, fault in enumerate(told[:_MOST_LISTED]):
        y = 1 - (top_in + 0.25 * row) / height_in
        words = (
            f"{fault.number}",
            f"{fault.title}, step {fault.step}",
            f"noticed after {seconds(fault.noticed_after_s)}",
            f"survivors stalled {seconds(fault.stalled_s)}",
            f"back after {seconds(fault.back_after_s)}",
        )
        for place, text in zip((0.0, 0.02, 0.43, 0.565, 0.73), words, strict=True):
            bold = "bold" if place == 0 else "normal"
            colour = theme.ink if place < 0.1 else theme.faint
            figure.text(_LEFT + place, y, text, color=colour, size=_SMALL, va="top", weight=bold)
    if len(told) > _MOST_LISTED:
        rest = f"and {len(told) - _MOST_LISTED} more"
        y = 1 - (top_in + 0.25 * _MOST_LISTED) / height_in
        figure.text(_LEFT + 0.02, y, rest, color=theme.faint, size=_SMALL, va="top")
