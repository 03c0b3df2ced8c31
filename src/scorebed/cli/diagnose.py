"""`scorebed diagnose RUN`: is the score good? Gradient bias and variance, coverage, conditioning,
and a verdict.
"""

import io
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromEight, FromTwo, FromZero, Positive
from scorebed.cli._output import LEFT, RIGHT, Json, print_json, print_table, print_text
from scorebed.cli._parts import RunParts


def diagnose(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    outer: Annotated[FromEight, Parameter(help="Most trajectories of each policy, N.")] = 2048,
    minutes: Annotated[
        Positive,
        Parameter(help="About how long to go on; it ends before when the verdict is clear."),
    ] = 2.0,
    theory: Annotated[
        FromEight | None,
        Parameter(
            help="Trajectories on which the paper's bound on the gradient's error and the parts "
            "of the score's loss are found as well; left out, they are not. 256 is enough."
        ),
    ] = None,
    truth: Annotated[
        Literal["auto", "importance", "laplace-mixture", "smc"],
        Parameter(
            help="The ground truth. auto: the closed form if there is one, draws around the "
            "posterior's modes where these tell nearly all, importance sampling where draws of "
            "the prior are enough, tempered SMC elsewhere."
        ),
    ] = "auto",
    inner: Annotated[
        Count, Parameter(help="Draws of the prior for importance sampling, M.")
    ] = 100000,
    particles: Annotated[FromTwo, Parameter(help="Particles for tempered SMC.")] = 512,
    draws: Annotated[Count, Parameter(help="Draws around the posterior's modes.")] = 1024,
    seed: Annotated[
        FromZero, Parameter(help="Seed of the draws; those of training are never used again.")
    ] = 0,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Compare the score of a run with the truth.

    Writes RUN/diagnosis.json, RUN/diagnosis.png and the report.

    The verdict is about the mean gradient as training uses it, per-trajectory clipping included:
    its cosine with the true one and its length, on the same draws, at the untrained and at the
    trained policy."""
    import jax.random as jr

    from scorebed import diagnostics
    from scorebed.cli._progress import Bars
    from scorebed.diagnostics import PLAIN, Clipping
    from scorebed.errors import InvalidValueError
    from scorebed.keys import named
    from scorebed.plots.diagnosis import draw_diagnosis
    from scorebed.plots.layout import lay_out
    from scorebed.policies import make_policy
    from scorebed.report import write_report
    from scorebed.report.tables import diagnosis_rows
    from scorebed.runs.durable import replace_file
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.load import load

    key, given = named(jr.key(seed), "diagnose"), parts.read()
    loaded = load(run, **given._asdict())
    if loaded.score is None:
        raise InvalidValueError(
            f"the run {run}",
            got=f"one of method {loaded.config.method}, without a score",
            expected="a run of method score or jointscore",
            fix=f"bounds of any run: scorebed evaluate {run}",
        )
    training = loaded.config.trained_by.policy_settings
    clipping = PLAIN if training is None else Clipping(training.batch, training.trajectory_clip)
    bars = Bars()

    def show(stage: str, done: int, total: int) -> None:
        if done == 0:
            bars.begin(stage, total, 0)
        else:
            bars.update(done, "")
        if done == total:
            bars.close()

    found = diagnostics.diagnose(
        loaded.task,
        loaded.score,
        loaded.policy,
        loaded.sampler,
        untrained=make_policy(loaded.config.policy, loaded.task, key=named(key, "untrained")),
        **clipping._asdict(),
        outer=outer,
        minutes=minutes,
        theory=theory or 0,
        truth=truth,
        inner=inner,
        particles=particles,
        draws=draws,
        on_group=show,
        key=key,
    )
    result = {"run": str(run), "task": loaded.config.task, **found.values()}
    picture = io.BytesIO()
    lay_out(draw_diagnosis(found)).savefig(picture, format="png", dpi=150)
    with RunFolder.open(run).acquire() as folder:
        folder.write_json_atomic("diagnosis.json", result)
        replace_file(folder.path / "diagnosis.png", picture.getvalue())
    write_report(run, parts=given)
    if as_json:
        print_json(result)
        return
    print_table({"": LEFT, "value": RIGHT, " ": LEFT}, diagnosis_rows(result))
    print_text(found.verdict)
