"""`scorebed diagnose RUN`: is the score good? Gradient bias and variance, coverage, conditioning,
and a verdict.
"""

import io
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromEight, FromTwo, FromZero
from scorebed.cli._output import LEFT, RIGHT, Json, print_json, print_table, print_text
from scorebed.cli._parts import RunParts

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from scorebed.diagnostics import Coverage, GradientError, ScoreError
    from scorebed.nle import Ledger
    from scorebed.runs.load import Run
    from scorebed.scores.reference import Truth

RIVALS = (15, 255)  # contrastive parameters of the PCE curves
QUANTILES = {"10%": 0.1, "median": 0.5, "90%": 0.9}


BATCHES = tuple(4**i for i in range(9))  # sizes at which the error of a gradient is shown


def diagnose(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    outer: Annotated[FromEight, Parameter(help="Number of trajectories, N.")] = 512,
    truth: Annotated[
        Literal["auto", "importance", "smc"],
        Parameter(
            help="The ground truth. auto: the closed form if there is one, importance sampling "
            "where draws of the prior are enough, tempered SMC elsewhere."
        ),
    ] = "auto",
    inner: Annotated[
        Count, Parameter(help="Draws of the prior for importance sampling, M.")
    ] = 100000,
    particles: Annotated[FromTwo, Parameter(help="Particles for tempered SMC.")] = 2048,
    seed: Annotated[
        FromZero, Parameter(help="Seed of the draws; those of training are never used again.")
    ] = 0,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Compare the score of a run with the truth.

    Writes RUN/diagnosis.json, RUN/diagnosis.png and the report.

    The bias of the policy gradient is given in units of the true gradient's norm, at the trained or
    at the untrained policy, whichever is larger: at a trained policy the true gradient is close to
    zero."""
    import jax.random as jr
    import numpy as np

    from scorebed import diagnostics
    from scorebed.errors import InvalidValueError
    from scorebed.keys import named
    from scorebed.nle import Ledger
    from scorebed.plots.diagnosis import draw_diagnosis
    from scorebed.policies.random import RandomDesigns
    from scorebed.report import write_report
    from scorebed.report.tables import diagnosis_rows
    from scorebed.runs.durable import replace_file
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.load import load
    from scorebed.tasks.nuisance import has_nuisance

    n, m, p = (
        outer,
        inner,
        particles,
    )
    key = named(jr.key(seed), "diagnose")
    given = parts.read()
    loaded, ledger = load(run, **given._asdict()), Ledger()
    model, score, policy = loaded.task, loaded.score, loaded.policy
    if score is None:
        raise InvalidValueError(
            f"the run {run}",
            got=f"one of method {loaded.config.method}, without a score",
            expected="a run of method score or jointscore",
            fix=f"bounds of any run: scorebed evaluate {run}",
        )
    designs = RandomDesigns(loaded.sampler)
    covered = diagnostics.coverage(
        model, loaded.sampler, policy, outer=n, key=named(key, "coverage")
    )
    conditions = {
        name: diagnostics.conditioning(model, each, key=named(key, "conditioning", name))
        for name, each in (("sampler", designs), ("policy", policy))
    }
    if model.has_density and not has_nuisance(model):
        compared = _compare(loaded, covered, truth, n, m, p, ledger, key=key)
    else:
        compared = _Compared(
            {"outer": n, "verdict": diagnostics.verdict_without_truth(covered)}, {}, {}
        )
    result = {
        "run": str(run),
        "task": loaded.config.task,
        **compared.values,
        "coverage": {
            "outside": covered.share,
            "outside_by_step": [float(x) for x in covered.outside],
        },
        "conditioning": {
            name: {
                label: float(np.quantile(numbers, q, method="lower"))
                for label, q in QUANTILES.items()
            }
            for name, numbers in conditions.items()
        },
        "nle": ledger.spent,
        "nle_stages": ledger.totals,
    }
    picture = io.BytesIO()
    draw_diagnosis(
        compared.curves, compared.errors, covered.outside, conditions, batches=BATCHES
    ).savefig(picture, format="png", dpi=150)
    with RunFolder.open(run).own() as folder:
        folder.write_json_atomic("diagnosis.json", result)
        replace_file(folder.path / "diagnosis.png", picture.getvalue())
    write_report(run, parts=given)
    if as_json:
        print_json(result)
        return
    print_table({"": LEFT, "value": RIGHT, " ": LEFT}, diagnosis_rows(result))
    print_text(str(compared.values["verdict"]))


class _Compared(NamedTuple):
    """What is reported about a score, the gradient errors of each estimator, and the score's errors
    by designs.
    """

    values: dict[str, Any]
    curves: "dict[str, GradientError]"
    errors: "dict[str, ScoreError]"


def _compare(
    run: "Run",
    covered: "Coverage",
    wanted: str,
    n: int,
    m: int,
    p: int,
    ledger: "Ledger",
    *,
    key: "PRNGKeyArray",
) -> _Compared:
    """The score of a run against the truth, at its policy and at an untrained one."""
    from scorebed import diagnostics
    from scorebed.cli._progress import Bars
    from scorebed.keys import named
    from scorebed.policies import make_policy
    from scorebed.policies.random import RandomDesigns

    bars, against = Bars(), _ground_truth(run, wanted, m, p, ledger, key=named(key, "draws"))
    untrained = make_policy(run.config.policy, run.task, key=named(key, "untrained"))

    def compare(stage: str, measure: Any, policy: Any, **options: Any) -> Any:
        bars.begin(stage, 0, 0)
        found = measure(
            run.task,
            run.score,
            against.truth,
            policy,
            outer=n,
            on_group=lambda done, total: bars.update(done, "", total),
            key=named(key, stage),
            **options,
        )
        bars.close()
        ledger.charge(stage, found.nle)
        return found

    trained, pce, _ = compare("gradient", diagnostics.gradient_error, run.policy, pce=RIVALS)
    start = compare("gradient-untrained", diagnostics.gradient_error, untrained).score
    errors = {
        "sampler": compare("score-sampler", diagnostics.score_error, RandomDesigns(run.sampler)),
        "policy": compare("score-policy", diagnostics.score_error, run.policy),
    }
    bias = diagnostics.relative_bias(trained, start)
    values = {
        "truth": against.name,
        "outer": trained.outer,
        "inner": m if against.name == "importance" else None,
        "particles": p if against.name == "smc" else None,
        "effective_draws": against.ess,
        "verdict": diagnostics.verdict(bias, covered, ess=against.ess),
        "relative_bias": bias.value,
        "relative_bias_upper": bias.upper,
        "gradient": {"trained": _gradient(trained), "untrained": _gradient(start)},
        "pce": [{"inner": count, **_gradient(error)} for count, error in pce.items()],
        "batches": list(BATCHES),
        "score_error": {name: _score_error(error) for name, error in errors.items()},
    }
    return _Compared(
        values, {"score": trained} | {f"PCE, M = {c}": error for c, error in pce.items()}, errors
    )


class _Against(NamedTuple):
    """The ground truth, its name, and its effective draws on the worse histories: infinite where
    they do not matter.
    """

    truth: "Truth"
    name: str
    ess: float


def _ground_truth(
    run: "Run", wanted: str, inner: int, particles: int, ledger: "Ledger", *, key: "PRNGKeyArray"
) -> _Against:
    """The truth that was asked for, or for `auto` the cheapest that can be trusted."""
    import numpy as np

    from scorebed.diagnostics import FEW_DRAWS, effective_draws
    from scorebed.scores.reference import ImportanceTruth, SMCTruth, exact_truth

    logger = logging.getLogger("scorebed.diagnose")
    tempered = _Against(SMCTruth(run.task, particles), "smc", math.inf)
    if wanted == "auto" and (exact := exact_truth(run.task)) is not None:
        return _Against(exact, "exact", math.inf)
    if wanted == "smc":
        return tempered
    sizes = effective_draws(run.task, run.policy, inner=inner, key=key)
    ledger.charge("effective-draws", len(sizes) * inner * run.task.horizon)
    ess = float(np.quantile(sizes, 0.1))
    few = (
        f"{inner:,} draws of the prior are {ess:.0f} effective ones or fewer on a tenth of the "
        "histories"
    )
    if ess >= FEW_DRAWS or wanted == "importance":
        if ess < FEW_DRAWS:
            logger.warning("%s: use --truth smc, or more --inner.", few)
        return _Against(ImportanceTruth(run.task, inner), "importance", ess)
    logger.info("%s: the ground truth is tempered SMC with %s particles.", few, f"{particles:,}")
    return tempered


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
