"""The picture of a run: loss over steps, members over time, each fault marked in both.

Owns ``draw``.  matplotlib is imported when a picture is drawn; it is drawn off screen (Agg) and
without pyplot, so that nothing global is left behind.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from danaus.app.events import SERVICE
from danaus.app.fault_table import seconds
from danaus.app.lanes import Span, State, lanes, service_lane
from danaus.app.run_record import RunRecord
from danaus.app.timeline import faults
from danaus.core.errors import DependencyMissing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NUMBERED = 24
_MOST_LISTED = 8
_WIDTH_IN = 11.0
_DPI = 160
_LOSS_TOP_IN, _LOSS_IN = 0.95, 3.5
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
    figure = Figure(facecolor=theme.paper, dpi=_DPI)
    FigureCanvasAgg(figure)
    _Painter(figure, record, reference, theme=theme).paint()
    out = io.BytesIO()
    figure.savefig(out, format="png", facecolor=theme.paper)
    return out.getvalue()


class _Painter:
    """Draws one run onto one figure, part by part from the top."""

    def __init__(
        self, figure: Figure, record: RunRecord, reference: RunRecord | None, *, theme: Theme
    ) -> None:
        self._figure, self._theme = figure, theme
        self._record, self._reference = record, reference
        self._told = faults(record)
        self._lanes = dict(lanes(record))
        if service := service_lane(record):
            self._lanes[SERVICE] = service

    def paint(self) -> None:
        """Draw everything, on as tall a figure as it needs."""
        lanes_in = max(0.8, min(_TALLEST_LANES_IN, 0.36 * len(self._lanes)))
        list_in = 0.25 * min(len(self._told), _MOST_LISTED + 1)
        lanes_top_in = _LOSS_TOP_IN + _LOSS_IN + 0.90
        list_top_in = lanes_top_in + lanes_in + 0.62
        self._figure.set_size_inches(_WIDTH_IN, list_top_in + list_in + 0.15)
        self._title()
        loss_axes = self._axes_at(_LOSS_TOP_IN, _LOSS_IN)
        lane_axes = self._axes_at(lanes_top_in, lanes_in)
        self._loss(loss_axes)
        self._members(lane_axes)
        self._mark(loss_axes, [float(f.step) for f in self._told])
        self._mark(lane_axes, [f.time - self._record.start for f in self._told])
        self._list_faults(list_top_in)

    def _axes_at(self, top_in: float, tall_in: float) -> Axes:
        """Add axes over the picture's width, ``top_in`` inches under its upper edge."""
        height_in = self._figure.get_figheight()
        bottom = 1 - (top_in + tall_in) / height_in
        axes = self._figure.add_axes((_LEFT, bottom, _WIDE, tall_in / height_in))
        axes.set_facecolor(self._theme.paper)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(self._theme.grid)
        axes.tick_params(colors=self._theme.faint, labelsize=_SMALL, length=0)
        return axes

    def _write(self, x: float, top_in: float, words: str, **how: Any) -> None:
        """Write words ``top_in`` inches under the upper edge."""
        y = 1 - top_in / self._figure.get_figheight()
        self._figure.text(x, y, words, **{"size": _SMALL, "color": self._theme.faint, **how})

    def _title(self) -> None:
        record = self._record
        counts = (
            (max(record.losses, default=0), "step"),
            (len(record.replicas), "replica"),
            (len(self._told), "fault"),
        )
        words = [f"{n} {name}{'' if n == 1 else 's'}" for n, name in counts]
        self._write(_LEFT, 0.36, record.name, color=self._theme.ink, size=_LARGE, weight="bold")
        self._write(_LEFT, 0.60, "   ·   ".join(words), size=_MEDIUM)

    def _loss(self, axes: Axes) -> None:
        theme = self._theme
        axes.grid(axis="y", color=theme.grid, linewidth=0.8)
        axes.set_axisbelow(True)
        own = "this run" if self._reference is None else "through the faults"
        curves: list[tuple[RunRecord | None, dict[str, Any]]] = [
            (self._reference, {"color": theme.reference, "linewidth": 6, "label": "undisturbed"}),
            (self._record, {"color": theme.run, "linewidth": 1.5, "label": own}),
        ]
        for record, how in curves:
            if record is not None and record.losses:
                steps, values = zip(*record.losses.items(), strict=True)
                axes.plot(steps, values, solid_capstyle="round", **how)
        if self._record.losses:
            axes.set_xlim(0, max(1, *self._record.losses))
            axes.legend(
                loc="upper right",
                frameon=False,
                fontsize=_MEDIUM,
                labelcolor=theme.ink,
                handlelength=1.6,
            )
        else:
            self._say(axes, "no step was committed")
        axes.set_ylabel("loss, nats per token", color=theme.faint, size=_SMALL)
        axes.set_xlabel("step", color=theme.faint, size=_SMALL, loc="left")

    def _say(self, axes: Axes, words: str) -> None:
        how: dict[str, Any] = {"ha": "center", "va": "center", "size": _MEDIUM}
        axes.text(0.5, 0.5, words, transform=axes.transAxes, color=self._theme.faint, **how)

    def _members(self, axes: Axes) -> None:
        seen: set[State] = set()
        for row, (name, spans) in enumerate(self._lanes.items()):
            for span in spans:
                self._bar(axes, row, span, thin=name == SERVICE)
                seen.add(span.state)
        every = 1 + int(len(self._lanes) * 0.2 / _TALLEST_LANES_IN)
        axes.set_yticks(range(len(self._lanes))[::every], list(self._lanes)[::every])
        axes.tick_params(axis="y", labelsize=_MEDIUM, labelcolor=self._theme.ink)
        axes.set_ylim(len(self._lanes) - 0.45, -0.55)
        axes.set_xlim(0, max(0.1, self._record.end - self._record.start))
        words = "seconds since the start"
        axes.set_xlabel(words, color=self._theme.faint, size=_SMALL, loc="left")
        if self._lanes:
            self._name_states(axes, [s for s in _STATE_WORDS if s in seen])
        else:
            self._say(axes, "no replica was seen")

    def _bar(self, axes: Axes, row: int, span: Span, *, thin: bool) -> None:
        """Draw a span; a state of absence is a thin line, so that it reads as a gap."""
        axes.barh(
            row,
            span.end - span.start,
            left=span.start - self._record.start,
            height=0.16 if span.state == "down" else 0.30 if thin else 0.62,
            color=self._theme.states[span.state],
            linewidth=0,
        )

    def _name_states(self, axes: Axes, states: Sequence[State]) -> None:
        """Name the colours under the lanes at the right, beside the axis' own name."""
        from matplotlib.patches import Patch

        handles = [Patch(color=self._theme.states[s], label=_STATE_WORDS[s]) for s in states]
        axes.legend(
            handles=handles,
            loc="upper right",
            bbox_to_anchor=(1.0, -0.25 / self._tall_in(axes)),
            ncols=max(1, len(handles)),
            frameon=False,
            fontsize=_SMALL,
            labelcolor=self._theme.faint,
            handlelength=0.9,
            handleheight=0.9,
            columnspacing=1.2,
            borderaxespad=0.0,
        )

    def _mark(self, axes: Axes, places: Sequence[float]) -> None:
        """Draw a dotted line at each fault, and its number in a disc above the axes."""
        low, high = axes.get_xlim()
        inside = [min(max(place, low), high) for place in places]
        colour = self._theme.fault
        for place in inside:
            axes.axvline(place, color=colour, linewidth=0.9, linestyle=(0, (1, 2)), alpha=0.65)
        if len(inside) > _MOST_NUMBERED:
            return
        above = 1 + 0.13 / self._tall_in(axes)
        apart = spread(inside, least=0.021 * (high - low), low=low, high=high)
        for number, place in enumerate(apart, 1):
            axes.annotate(
                str(number),
                (place, above),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="center",
                size=7.5,
                weight="bold",
                color=self._theme.paper,
                bbox={"boxstyle": "circle,pad=0.28", "fc": colour, "ec": "none"},
                annotation_clip=False,
            )

    def _tall_in(self, axes: Axes) -> float:
        return float(axes.get_position().height * self._figure.get_figheight())

    def _list_faults(self, top_in: float) -> None:
        """Write one line for each fault at the foot of the picture."""
        for row, fault in enumerate(self._told[:_MOST_LISTED]):
            at_in = top_in + 0.25 * row
            ink = self._theme.ink
            self._write(_LEFT, at_in, str(fault.number), va="top", weight="bold", color=ink)
            words = f"{fault.title}, step {fault.step}"
            self._write(_LEFT + 0.02, at_in, words, va="top", color=ink)
            for place, what, value in (
                (0.43, "noticed after", fault.noticed_after_s),
                (0.565, "survivors stalled", fault.stalled_s),
                (0.73, "back after", fault.back_after_s),
            ):
                self._write(_LEFT + place, at_in, f"{what} {seconds(value)}", va="top")
        if len(self._told) > _MOST_LISTED:
            rest = f"and {len(self._told) - _MOST_LISTED} more"
            self._write(_LEFT + 0.02, top_in + 0.25 * _MOST_LISTED, rest, va="top")


def spread(places: Sequence[float], *, least: float, low: float, high: float) -> list[float]:
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
