"""Colours and axes that all figures share."""

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

INK, SOFT, FAINT = "#1b2430", "#8b96a5", "#dfe4ea"
TRUTH, GROUND = "#d1495b", "#efe6d8"
LINES = ("#2f6db5", "#e08a1e", "#3a8f6f", "#8a5fb0")
STEPS = "viridis"
SHADES = LinearSegmentedColormap.from_list("shades", ("#fbfcfd", "#d5dee8", "#9fb2c6", "#6c86a3"))


def plain_axes(ax: Axes) -> None:
    """Two faint spines and small numbers."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(labelsize=7, color=SOFT)
