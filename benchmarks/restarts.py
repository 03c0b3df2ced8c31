"""The best of many restarts: what P = 1, 5 and 50 policies cost when the worse half is repeatedly
stopped.

Stage 2 of the preset `quick` on the pendulum, with the score from posterior modes, which needs no
stage 1. Everything is as in a run: checkpoints, intermediate estimates of the bound, the choice at
the end. Costs are the likelihood evaluations of training, which are exact, and the seconds of the
whole stage including compilation, both as ratios to one policy. Bounds are compiled beforehand by a
run that does not count. The lower bound is that of the chosen policy, on fresh draws.

    make bench, or: python benchmarks/restarts.py            some minutes
    python benchmarks/restarts.py --quick                    does it run?
"""

import pathlib
import tempfile
import time
from typing import NamedTuple

import scorebed  # before JAX, so that the memory allocator is set
import jax
import jax.random as jr
from measuring import arguments, table
from scorebed.presets.reader import preset_values
from scorebed.bounds.contrastive import eig_bounds
from scorebed.runs.config import make_config
from scorebed.runs.execution import Execution
from scorebed.runs.folder import RunFolder
from scorebed.runs.stage import Progress
from scorebed.tasks import make_task

GOAL = 15.0
RESTARTS = {1: 0, 5: 3, 50: 6}  # P, and the halvings that leave one
SETTINGS = {
    "pendulum": [
        "score.kind=laplace",
        "score.particles=1",
        "score.iterations=6",
        "policy_training.patience=0",
    ],
    "linear-gaussian": [
        "policy_training.steps=8",
        "pce.inner=3",
        "policy_training.batch=4",
        "policy_training.monitor_every=4",
        "policy_training.monitor_inner=20",
        "evaluation.outer=32",
        "evaluation.inner=100",
        "evaluation.select_outer=16",
        "evaluation.select_inner=20",
    ],
}


class Outcome(NamedTuple):
    """What a number of restarts came to."""

    restarts: int
    rungs: str
    nle: int
    seconds: float
    lower: float
    error: float


def restarts(name: str, count: int, halvings: int) -> Outcome:
    """Train, choose, and bound what was chosen."""
    task = make_task(name)
    more = [f"policies={count}", f"policy_training.halvings={halvings}"]
    how = (
        {"method": "score", "policy": "plan"}
        if name == "pendulum"
        else {"method": "pce", "policy": "static"}
    )
    config = make_config(preset_values("quick", name, task, **how), [*SETTINGS[name], *more])
    with (
        tempfile.TemporaryDirectory() as folder,
        RunFolder.create(pathlib.Path(folder) / "run", config) as run,
    ):
        work = Execution(run, config, task, progress=Progress())
        learned = work.upfront(0)
        begun = time.perf_counter()
        chosen = work.choose(0, [learned])
        took = time.perf_counter() - begun
    stage = work.method.train(work.job, learned, "policy-0-0", count)
    ladder, spent = stage.ladder, work.ledger.totals[stage.name]
    assert spent == stage.nle_at_most(), "the ledger is exact"
    sizes = config.evaluation
    found = eig_bounds(task, chosen, outer=sizes.outer, inner=sizes.inner, key=jr.key(1))
    words = ", ".join(f"{rung.restarts} to {rung.end}" for rung in ladder)
    return Outcome(count, words, spent, took, found.lower, found.lower_se)


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    print(f"restarts; scorebed {scorebed.__version__}, jax {jax.__version__}")
    wanted = {1: 0, 3: 2} if quick else RESTARTS
    if not quick:
        restarts("pendulum", 1, 0)
    found = [
        restarts("linear-gaussian" if quick else "pendulum", count, halvings)
        for count, halvings in wanted.items()
    ]
    one = found[0]
    rows = [
        [
            each.restarts,
            each.rungs,
            f"{each.nle / one.nle:.2f}",
            f"{each.seconds:.0f}",
            f"{each.seconds / one.seconds:.2f}",
            f"{each.lower:.3f} ± {each.error:.3f}",
        ]
        for each in found
    ]
    table(
        (
            "restarts",
            "how many to which step",
            "NLE, of one",
            "s",
            "time, of one",
            "lower bound, nats",
        ),
        rows,
    )
    most = found[-1]
    ratios = (most.nle / one.nle, most.seconds / one.seconds)
    print(
        f"goal: the best of {most.restarts} at {GOAL:.0f} times the cost of one: "
        f"{'met' if max(ratios) <= GOAL else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
