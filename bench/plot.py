"""The picture: pairs per second by board size, one panel for each arrangement of claimers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.claims import SEEDS, Claims, bare
from bench.options import Arrangement, Options

_COLOURS = {"sqlite": "#1b6ca8", "postgresql": "#2e8b57", "files": "#c77d0a", SEEDS: "#b03a48"}


def draw(found: Claims, options: Options, path: Path) -> None:
    # A second to import, and nothing but this needs it.
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    matplotlib.rcParams.update({"svg.hashsalt": "bullpen", "font.size": 10, "axes.titlesize": 10})
    arrangements = options.arrangements
    figure, panels = pyplot.subplots(
        1, len(arrangements), figsize=(3.1 * len(arrangements) + 1.6, 3.9), sharey=True, squeeze=False
    )
    for panel, arrangement in zip(panels[0], arrangements, strict=True):
        for name in (name for name in found.names if not name.endswith(", 1 claimer")):
            _draw_line(panel, found, options, arrangement, name)
        panel.set(
            xscale="log", yscale="log", title=_title(arrangement), xlabel="tasks on the board", xticks=options.sizes
        )
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace(",000", "k")))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        panel.minorticks_off()
        panel.grid(visible=True, color="#e4e4e4", linewidth=0.8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("claimed and completed, per second")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", frameon=False)
    figure.tight_layout(rect=(0, 0, 1 - 1.7 / figure.get_size_inches()[0], 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _title(arrangement: Arrangement) -> str:
    return arrangement.describe().replace(" in ", "\nin ").replace(", ", ",\n")


def _rate(found: Claims, arrangement: Arrangement, size: int, name: str) -> float:
    """Of a bare engine the better of its two, as in the tables."""
    cells = [found.cells.get((arrangement, size, one)) for one in (name, f"{name}, 1 claimer")]
    return max(cell.rate for cell in cells if cell is not None)


def _draw_line(panel: Any, found: Claims, options: Options, arrangement: Arrangement, name: str) -> None:
    rates = [_rate(found, arrangement, size, name) or None for size in options.sizes]
    is_bare = name == bare(name.removeprefix("bare "))
    panel.plot(
        options.sizes,
        rates,
        label=name,
        color=_COLOURS[name.removeprefix("bare ")],
        linestyle="--" if is_bare else "-",
        linewidth=1.4 if is_bare else 2.0,
        marker="o",
        markersize=3 if is_bare else 4.5,
    )
