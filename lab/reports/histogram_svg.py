"""How the latencies are spread, as SVG on a logarithmic scale; colours come from the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from lab.reports.figures import Latencies

WIDTH = 1120.0
HEIGHT = 190.0
LEFT = 20.0
BASE = 150.0
TOP = 34.0
BINS_PER_DECADE = 12
SHORTEST = 0.001
"""Milliseconds; what is below is drawn here."""


def histogram_svg(latencies: Latencies) -> str:
    """Draw the latencies; an empty text when there are none."""
    return "\n".join(_drawing(latencies)) if latencies.values else ""


def bins(values: Sequence[float]) -> tuple[int, tuple[int, ...]]:
    """The number of the first bin, and the counts from there on.

    Bin ``n`` holds from 10^(n/12) to 10^((n+1)/12) milliseconds. At least one decade is covered.
    """
    numbers = [floor(log10(max(value, SHORTEST)) * BINS_PER_DECADE) for value in values]
    first = floor(min(numbers) / BINS_PER_DECADE) * BINS_PER_DECADE
    last = ceil((max(numbers) + 1) / BINS_PER_DECADE) * BINS_PER_DECADE
    counts = [0] * (last - first)
    for number in numbers:
        counts[number - first] += 1
    return first, tuple(counts)


def _drawing(latencies: Latencies) -> Iterator[str]:
    first, counts = bins(latencies.values)
    step = (WIDTH - 2 * LEFT) / len(counts)
    most = max(counts)

    def across(value: float) -> float:
        place = log10(max(value, SHORTEST)) * BINS_PER_DECADE - first
        return LEFT + place * step

    yield (
        f'<svg class="histogram" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
        ' aria-label="Histogram of latencies">'
    )
    for index, count in enumerate(counts):
        if count:
            height = max(1.5, (BASE - TOP) * count / most)
            low, high = (10 ** ((first + index + n) / BINS_PER_DECADE) for n in (0, 1))
            yield (
                f'<rect x="{LEFT + index * step + 1:.1f}" y="{BASE - height:.1f}"'
                f' width="{step - 2:.1f}" height="{height:.1f}" rx="2">'
                f"<title>{count:,} from {low:.3g} to {high:.3g} ms</title></rect>"
            )
    yield f'<line class="axis" x1="{LEFT:g}" y1="{BASE:g}" x2="{WIDTH - LEFT:g}" y2="{BASE:g}"/>'
    for decade in range(0, len(counts) + 1, BINS_PER_DECADE):
        value = 10.0 ** ((first + decade) / BINS_PER_DECADE)
        x = LEFT + decade * step
        anchor = "start" if decade == 0 else "end" if decade == len(counts) else "middle"
        yield f'<text x="{x:.1f}" y="{BASE + 20:g}" text-anchor="{anchor}">{value:g} ms</text>'
    for name, value, y in (("p50", latencies.median, TOP - 18), ("p99", latencies.p99, TOP - 4)):
        x = across(value)
        side, shift = ("end", -6) if x > WIDTH / 2 else ("start", 6)
        yield f'<line class="mark" x1="{x:.1f}" y1="{y - 9:g}" x2="{x:.1f}" y2="{BASE:g}"/>'
        yield (
            f'<text class="mark" x="{x + shift:.1f}" y="{y:g}" text-anchor="{side}">'
            f"{name} {value:.2f} ms</text>"
        )
    yield "</svg>"
