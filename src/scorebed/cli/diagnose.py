"""`scorebed diagnose RUN`: is the score good? Gradient bias and variance, coverage, conditioning, and a verdict."""

import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._output import LEFT, RIGHT, Json, print_json, print_table, print_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scorebed.diagnostics import Estimate, GradientError, ScoreError

BATCHES = tuple(4**i for i in range(9))
RIVALS = (15, 255)  # contrastive parameters of the PCE curves
QUANTILES = {"10%": 0.1, "median": 0.5, "90%": 0.9}


def diagnose(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    outer: Annotated[str, Parameter(help="Number of trajectories, N.")] = "512",
    inner: Annotated[
        str, Parameter(help="Draws of the prior behind a ground truth with no closed form, M.")
    ] = "100000",
    seed: Annotated[str, Parameter(help="Seed of the draws; those of training are never used again.")] = "0",
    as_json: Json = False,
) -> None:
    """Compare the score of a run with the truth. Writes RUN/diagnosis.json and RUN/diagnosis.png.

    The bias of the policy gradient is given in units of the true gradient's norm, at the trained or at the untrained policy,
    whichever is larger: at a trained policy the true gradient is close to zero.
    """
    import jax.random as jr
    import numpy as np

    from scorebed import diagnostics
    from scorebed.cli._numbers import whole
    from scorebed.cli._progress import Bars
    from scorebed.keys import named
    from scorebed.policies import make_policy
    from scorebed.policies.random import RandomDesigns
    from scorebed.runs.durable import replace_file
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.load import load
    from scorebed.tasks.closed_form import ClosedForm

    n, m = whole("--outer", outer, 8), whole("--inner", inner, 1)
    key = named(jr.key(whole("--seed", seed, 0)), "diagnose")
    loaded, bars = load(run), Bars()
    task, score, policy = loaded.task, loaded.score, loaded.policy
    truth = diagnostics.ground_truth(task, inner=m)
    untrained = make_policy(loaded.config.policy, task, key=named(key, "untrained"))
    designs = RandomDesigns(loaded.sampler)

    def compare(stage: str, measure: Any, policy: Any, **options: Any) -> Any:
        bars.begin(stage, 0, 0)
        found = measure(
            task, score, truth, policy, outer=n, on_group=lambda done, total: bars.update(done, "", total),
            key=named(key, stage), **options,
        )  # fmt: skip
        bars.close()
        return found

    exact = isinstance(task, ClosedForm)
    ess = float("inf")
    if not exact:
        sizes = diagnostics.effective_draws(task, policy, inner=m, key=named(key, "draws"))
        ess = float(np.quantile(sizes, 0.1))
        if ess < diagnostics.FEW_DRAWS:
            logging.getLogger("scorebed.diagnose").warning(
                "The ground truth has %.0f effective draws or fewer on a tenth of the histories: use more --inner.", ess
            )
    trained, pce = compare("gradient", diagnostics.gradient_error, policy, pce=RIVALS)
    start = compare("gradient-untrained", diagnostics.gradient_error, untrained).score
    errors = {
        "sampler": compare("score-sampler", diagnostics.score_error, designs),
        "policy": compare("score-policy", diagnostics.score_error, policy),
    }
    reach = diagnostics.coverage(task, loaded.sampler, policy, outer=n, key=named(key, "coverage"))
    conditions = {
        name: diagnostics.conditioning(task, each, key=named(key, "conditioning", name))
        for name, each in (("sampler", designs), ("policy", policy))
    }
    bias = diagnostics.relative_bias(trained, start)
    words = diagnostics.verdict(bias, reach, ess=ess)

    result = {
        "run": str(run),
        "task": loaded.config.task,
        "truth": "exact" if exact else "importance",
        "outer": trained.outer,
        "inner": None if exact else m,
        "effective_draws": None if exact else ess,
        "verdict": words,
        "relative_bias": bias.value,
        "relative_bias_upper": bias.upper,
        "gradient": {"trained": _gradient(trained), "untrained": _gradient(start)},
        "pce": [{"inner": count, **_gradient(error)} for count, error in pce.items()],
        "batches": list(BATCHES),
        "score_error": {name: _score_error(error) for name, error in errors.items()},
        "coverage": {"outside": reach.share, "outside_by_step": [float(x) for x in reach.outside]},
        "conditioning": {
            name: {label: float(np.quantile(numbers, q, method="lower")) for label, q in QUANTILES.items()}
            for name, numbers in conditions.items()
        },
    }
    curves = {"score": trained} | {f"PCE, M = {count}": error for count, error in pce.items()}
    picture = io.BytesIO()
    _draw(curves, errors, reach.outside, conditions).savefig(picture, format="png", dpi=150)
    with RunFolder.open(run).own() as folder:
        folder.write_json_atomic("diagnosis.json", result)
        replace_file(folder.path / "diagnosis.png", picture.getvalue())
    if as_json:
        print_json(result)
        return
    rows = [
        ["gradient bias / gradient norm", f"{bias.value:.2%}", f"at most {bias.upper:.2%}"],
        ["batch size at which bias outweighs noise", f"{trained.crossover:.3g}", ""],
    ]
    for where, error in errors.items():
        for part, estimate in (("y", error.y), ("ξ", error.xi)):
            rows.append(
                [f"relative score error, {part}-part, {where} designs", f"{estimate.value:.3g}", f"± {estimate.se:.1g}"]
            )
    rows.append(
        ["designs outside of the sampler's reach", f"{reach.share:.1%}", f"worst step {reach.outside.max():.0%}"]
    )
    for where, numbers in conditions.items():
        rows.append([f"median condition number of ∂y/∂ξ, {where} designs", f"{np.median(numbers):.3g}", ""])
    print_table({"": LEFT, "value": RIGHT, " ": LEFT}, rows)
    print_text(words)


def _gradient(error: "GradientError") -> dict[str, Any]:
    return {
        "squared_bias": error.squared_bias.value,
        "squared_bias_se": error.squared_bias.se,
        "squared_norm": error.squared_norm.value,
        "squared_norm_se": error.squared_norm.se,
        "variance": error.variance,
        "crossover": error.crossover,
        "mse": [error.mse(n) for n in BATCHES],
    }


def _score_error(error: "ScoreError") -> dict[str, float]:
    return {"y": error.y.value, "y_se": error.y.se, "xi": error.xi.value, "xi_se": error.xi.se}


def _draw(
    curves: "dict[str, GradientError]", errors: "dict[str, ScoreError]", outside: Any, conditions: dict[str, Any]
) -> "Figure":
    """Four panels: MSE against N, relative errors, coverage by step, condition numbers."""
    import numpy as np
    from matplotlib.figure import Figure

    from scorebed.draw import LINES

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    (mse, relative), (reach, condition) = figure.subplots(2, 2)
    for colour, (name, error) in zip(LINES, curves.items(), strict=False):
        mse.loglog(BATCHES, [error.mse(n) for n in BATCHES], color=colour, label=name)
        if error.squared_bias.value > 0:
            mse.axhline(error.squared_bias.value, color=colour, linewidth=0.8, linestyle=":")
    mse.set(xlabel="batch size N", ylabel="squared error of the gradient", title="‖B‖² + V/N (dotted: ‖B‖²)")
    mse.legend(frameon=False, fontsize=8)

    for i, (colour, (name, found)) in enumerate(zip(LINES, errors.items(), strict=False)):
        parts: list[Estimate] = [found.y, found.xi]
        places = np.arange(2) + 0.35 * (i - 0.5)
        relative.bar(places, [e.value for e in parts], 0.32, yerr=[e.se for e in parts], color=colour, label=name)
    relative.set_xticks([0, 1], ["y-part", "ξ-part"])
    relative.set(ylabel="E‖s − μ‖² / E‖μ‖²", title="relative score error, by designs")
    relative.legend(frameon=False, fontsize=8)

    reach.bar(np.arange(1, len(outside) + 1), 100 * outside, color=LINES[1])
    reach.set(xlabel="step", ylabel="designs out of reach [%]", ylim=(0, 100), title="coverage of the policy's designs")

    logs = {name: np.log10(numbers[np.isfinite(numbers)]) for name, numbers in conditions.items()}
    top = max([1.0, *(float(x.max()) for x in logs.values() if x.size)])
    for colour, (name, x) in zip(LINES, logs.items(), strict=False):
        condition.hist(x, bins=np.linspace(0, top, 30), color=colour, alpha=0.6, label=name)
    condition.set(xlabel="log₁₀ condition number of ∂y/∂ξ", ylabel="trajectories", title="Jacobian conditioning")
    condition.legend(frameon=False, fontsize=8)
    for ax in (mse, relative, reach, condition):
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(9)
    return figure
