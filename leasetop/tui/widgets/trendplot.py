"""One curve over the last hour, with its name and figures above it; words where there is nothing to draw.

Drawn without colours of its own: the style sheet gives one, so that every theme, sixteen colours and none at all work.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise

from textual.app import ComposeResult, RenderResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static
from textual_plotext import PlotextPlot

from leasetop import text

_MINUTES = 60
_SPANS_S = (10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800)


class Curve(PlotextPlot):
    """The curve: minutes before now -> value. A minute that is missing is a gap."""

    def __init__(self, ceiling: Callable[[float], float], said: Callable[[float], str]) -> None:
        super().__init__()
        self.set_reactive(Curve.theme, "clear")
        self._ceiling, self._said = ceiling, said
        self._values: Mapping[int, float] = {}

    def show(self, values: Mapping[int, float]) -> None:
        self._values = values
        self.refresh()

    def render(self) -> RenderResult:
        plot, width, rows = self.plt, self.size.width, self.size.height - 2
        top = self._ceiling(max(self._values.values(), default=0))
        parts = 4 if rows >= 12 else 2 if rows >= 5 else 1
        heights = [top * n / parts for n in range(parts + 1)]
        step = 10 if width >= 90 else 15 if width >= 60 else 30
        plot.clear_figure()
        # Curves take their colours when they are given, not when they are drawn.
        plot.theme("clear")
        plot.xaxes(True, False)
        plot.yaxes(True, False)
        plot.xlim(-_MINUTES, 0)
        plot.ylim(0, top)
        plot.yticks(heights, [self._said(height) for height in heights])
        plot.xticks(
            [-minutes for minutes in range(0, _MINUTES + 1, step)],
            ["now", *(f"-{minutes}m" for minutes in range(step, _MINUTES + 1, step))],
        )
        for run in _runs(self._values):
            plot.plot([-ago - 0.5 for ago in run], [self._values[ago] for ago in run], marker="braille")
        return super().render()


class TrendPlot(Vertical):
    """A curve under its title."""

    def __init__(self, title: str, look: str, curve: Curve) -> None:
        super().__init__(classes=f"trend -{look}")
        self._title, self._curve = title, curve

    def compose(self) -> ComposeResult:
        yield Static(classes="figures", markup=False)
        yield Static(classes="nothing", markup=False)
        yield self._curve

    def show(self, values: Mapping[int, float], figures: str) -> None:
        self._show(figures, "")
        self._curve.show(values)

    def say(self, nothing: str, figures: str = "") -> None:
        """Words instead of a curve."""
        self._show(figures, nothing)

    def _show(self, figures: str, nothing: str) -> None:
        self.query_one(".figures", Static).update(Content.assemble(" ", (self._title, "bold"), f"  {figures}"))
        self.query_one(".nothing", Static).update(Content(nothing))
        self.set_class(bool(nothing), "-nothing")


def of_counts() -> Curve:
    """A curve of numbers of things."""
    return Curve(_ceiling_of_counts, _count)


def of_spans() -> Curve:
    """A curve of spans of time, in seconds."""
    return Curve(_ceiling_of_spans, _span)


def _runs(values: Mapping[int, float]) -> list[list[int]]:
    """The minutes, the oldest first, as runs without a gap."""
    minutes = sorted(values, reverse=True)
    runs = [minutes[:1]] if minutes else []
    for before, after in pairwise(minutes):
        if after == before - 1:
            runs[-1].append(after)
        else:
            runs.append([after])
    return runs


def _ceiling_of_counts(value: float) -> float:
    """The next number whose half and quarter are short whole numbers."""
    if value <= 8:
        return 4 if value <= 4 else 8
    tens = 10 ** max(0, len(str(int(value))) - 2)
    return next(float(n * tens) for n in (12, 16, 20, 40, 60, 80, 100) if n * tens >= value)


def _ceiling_of_spans(seconds: float) -> float:
    return next((float(span) for span in _SPANS_S if span >= seconds), seconds)


def _span(seconds: float) -> str:
    return text.duration(timedelta(seconds=seconds)).replace("m00s", "m").replace("h00m", "h")


def _count(number: float) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:g}M"
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"
