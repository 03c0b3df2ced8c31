"""The picture of a diagnosis: errors of the gradient and the score, where there is a ground truth,
coverage of the policy's designs, and conditioning of the Jacobian.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scorebed.diagnostics import BATCHES, Comparison, Diagnosis, Estimate
from scorebed.plots.style import LINES, SOFT


def draw_diagnosis(found: Diagnosis) -> Figure:
    """MSE against the batch size and relative errors, where there is a ground truth; the share of
    designs that the sampler does not cover, step by step; and condition numbers.
    """
    compared, outside = found.comparison, found.coverage.outside
    rows = 1 if compared is None else 2
    figure = Figure(figsize=(11, 6.5 if rows == 2 else 3.4), layout="constrained")
    *above, coverage, condition = figure.subplots(rows, 2).flat
    if compared is not None:
        _draw_errors(above[0], above[1], compared)

    coverage.bar(np.arange(1, len(outside) + 1), 100 * outside, color=LINES[1])
    coverage.set(
        xlabel="step",
        ylabel="designs not covered [%]",
        ylim=(0, 100),
        title="coverage of the policy's designs",
    )
    if not outside.any():
        coverage.text(0.5, 0.5, "none", transform=coverage.transAxes, ha="center", color=SOFT)

    logs = {name: np.log10(x[np.isfinite(x)]) for name, x in found.conditioning.items()}
    # From 1, the best condition number, to 10 at least.
    everything = np.concatenate([*logs.values(), [0.0, 1.0]])
    bins = np.linspace(everything.min(), everything.max(), 41)
    for colour, (name, x) in zip(LINES, logs.items(), strict=False):
        condition.hist(x, bins=bins, color=colour, alpha=0.6, label=name)
    condition.set(
        xlabel="log₁₀ condition number of ∂y/∂ξ",
        ylabel="trajectories",
        title="Jacobian conditioning",
    )
    for ax in (*above, coverage, condition):
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(9)
        if ax is not coverage:  # next to the axes, where it hides nothing
            ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw_errors(mse: Axes, relative: Axes, compared: Comparison) -> None:
    for colour, (name, error) in zip(LINES, compared.curves.items(), strict=False):
        mse.loglog(BATCHES, [error.mse(n) for n in BATCHES], color=colour, label=name)
        if error.squared_bias.value > 0:
            mse.axhline(error.squared_bias.value, color=colour, linewidth=0.8, linestyle=":")
    mse.set(
        xlabel="batch size N",
        ylabel="squared error of the gradient",
        title="‖B‖² + V/N (dotted: ‖B‖²)",
    )

    for i, (colour, (name, of)) in enumerate(zip(LINES, compared.errors.items(), strict=False)):
        parts: list[Estimate] = [of.y, of.xi]
        places = np.arange(2) + 0.35 * (i - 0.5)
        relative.bar(
            places,
            [e.value for e in parts],
            0.32,
            yerr=[e.se for e in parts],
            color=colour,
            label=name,
        )
    relative.set_xticks([0, 1], ["y-part", "ξ-part"])
    relative.set(ylabel="E‖s − μ‖² / E‖μ‖²", title="relative score error, by designs")
