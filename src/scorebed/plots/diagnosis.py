"""The picture of a diagnosis: direction and errors of the gradient and errors of the score, where
there is a ground truth, coverage of the policy's designs, and conditioning of the Jacobian.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scorebed.diagnostics import BATCHES, Agreement, Comparison, Diagnosis, Estimate
from scorebed.diagnostics.verdict import FAIR, GOOD
from scorebed.plots.style import LINES, SOFT


def draw_diagnosis(found: Diagnosis) -> Figure:
    """Cosine and length of the gradient, its MSE against the batch size and relative errors of the
    score, where there is a ground truth; the share of designs that the sampler does not cover, step
    by step; and condition numbers.
    """
    compared, outside = found.comparison, found.coverage.outside
    rows = 1 if compared is None else 3
    figure = Figure(figsize=(11, 3.2 * rows), layout="constrained")
    *above, coverage, condition = figure.subplots(rows, 2).flat
    if compared is not None:
        _draw_directions(above[0], above[1], compared)
        _draw_errors(above[2], above[3], compared)

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
    without_legend = (coverage, *above[:2])
    for ax in (*above, coverage, condition):
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(9)
        if ax not in without_legend:  # next to the axes, where it hides nothing
            ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw_directions(cosine: Axes, length: Axes, compared: Comparison) -> None:
    """As training uses the gradient (filled) and as a plain mean (open), with two standard errors,
    for each policy and for all together.
    """
    rows: dict[str, tuple[Agreement, Agreement | None]] = {
        f"{name} policy": (each.used, each.plain) for name, each in compared.directions.items()
    }
    if len(rows) > 1:
        rows["together"] = (compared.agreement, None)
    for i, (used, plain) in enumerate(rows.values()):
        if not np.isfinite(used.cosine.value):
            for ax in (cosine, length):
                where = ax.get_yaxis_transform()
                text = "a gradient that cannot be told from zero"
                ax.text(0.5, i - 0.1, text, transform=where, ha="center", color=SOFT, fontsize=8)
        for found, shift in ((used, -0.1), (plain, 0.1)):
            if found is None or not np.isfinite(found.cosine.value):
                continue
            face = LINES[0] if found is used else "white"
            for ax, value in ((cosine, found.cosine), (length, found.length)):
                ax.errorbar(
                    value.value,
                    i + shift,
                    xerr=2 * value.se if np.isfinite(value.se) else None,
                    fmt="o",
                    color=LINES[0],
                    markerfacecolor=face,
                    capsize=3,
                )
    for ax in (cosine, length):
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set_ylim(len(rows) - 0.5, -0.5)
    for threshold in (GOOD, FAIR):
        cosine.axvline(threshold, color=SOFT, linewidth=0.8, linestyle=":")
    low, high = cosine.get_xlim()
    cosine.set(
        xlim=(max(low, -1.5), 1.05 if high < 1.05 else min(high, 1.5)),
        xlabel="cosine with the true gradient (dotted: fair, good)",
        title="as training uses it (filled), plain mean (open), ± 2 se",
    )
    length.axvline(1, color=SOFT, linewidth=0.8, linestyle=":")
    length.set(xlabel="length / length of the true gradient", title="length of the gradient")
    length.set_xlim(0, max(2.0, min(length.get_xlim()[1], 10.0)))


def _draw_errors(mse: Axes, relative: Axes, compared: Comparison) -> None:
    for colour, (name, error) in zip(LINES, compared.curves.items(), strict=False):
        # A bias within its error is none that a line could be drawn for.
        bias, se = error.squared_bias
        shown = bias if bias > 2 * se else 0.0
        label = name if shown else f"{name} (no bias found)"
        curve = [shown + error.variance / n for n in BATCHES]
        mse.loglog(BATCHES, curve, color=colour, label=label)
        if shown:
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
