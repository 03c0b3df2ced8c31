"""A step of the score and a step of a policy against their own floating-point work, and what their
time goes into.

Sizes are those of the preset `quick`. The work of a step is counted from its program (flops.py) and
divided by the time it takes; the peak is that of a product of matrices of the same type, measured
in the same run. What is not made of products of matrices cannot come near it: likelihoods, and the
small networks of a policy, step by step.

Parts are programs of their own, timed turn by turn with the whole: simulated experiments; the score
of them, or the loss that trains it; and what is left of the whole step, which is the way back.

    make bench, or: python benchmarks/steps.py            about two minutes, most of it compilation
    python benchmarks/steps.py --quick                    does it run?
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flops import flops
from measuring import arguments, best_of, table
from scorebed.presets.reader import preset_values
from scorebed.policies import make_policy
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import simulate
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score, score_kind
from scorebed.scores.base import Score
from scorebed.scores.standardise import standardiser
from scorebed.tasks import make_task
from scorebed.tasks.base import Task
from scorebed.training.fit import gradient_of
from scorebed.training.policy import policy_gradient
from scorebed.training.score import automatic_weights, matching_terms, score_loss

KEY = jr.key(0)
TASKS = ("location-finding", "pendulum")
ROUNDS = 6


class Step(NamedTuple):
    """A step of training: its gradient, and its parts by name, each with what it is called with."""

    name: str
    whole: tuple[Callable[..., Any], tuple[Any, ...]]
    parts: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]


def fresh_score(task: Task, sizes: dict[str, Any]) -> Score:
    wanted = {name: sizes[name] for name in ("particles", "cloud", "width")}
    standardise = standardiser(task, paper_sampler(task), key=KEY)
    return make_score(score_kind("particles", wanted), task, standardise, key=KEY)


def quick_values(name: str, task: Task) -> dict[str, Any]:
    """The preset `quick` with likelihood particles."""
    return preset_values("quick", name, task, method="score", score_kind="particles")


def score_step(name: str, *, small: bool) -> Step:
    """Stage 1: experiments of the sampler, likelihood particles, marginal score matching."""
    task = make_task(name)
    sizes = quick_values(name, task)["score"]
    batch, sampler = 4 if small else sizes["batch"], paper_sampler(task)
    params, static = eqx.partition(fresh_score(task, sizes), eqx.is_inexact_array)
    weights = automatic_weights(task, sampler, key=KEY)

    def experiments(key: Any) -> Any:
        return jax.vmap(lambda k: simulate(task, RandomDesigns(sampler), key=k))(
            jr.split(key, batch)
        )

    return Step(
        f"{name}, score (particles, batch {batch})",
        (gradient_of(score_loss(static, task, sampler, weights, batch=batch)), (params, KEY)),
        {
            "experiments": (experiments, (KEY,)),
            "loss": (
                lambda p, runs: matching_terms(eqx.combine(p, static), task, runs, weights),
                (params, experiments(KEY)),
            ),
        },
    )


def policy_step(name: str, *, small: bool) -> Step:
    """Stage 2: experiments of our policy for the task, the score of them, and the way back through
    the experiments.
    """
    task = make_task(name)
    values = quick_values(name, task)
    training = values["policy_training"]
    batch, clip = 4 if small else training["batch"], training["trajectory_clip"]
    score, policy = fresh_score(task, values["score"]), make_policy(values["policy"], task, key=KEY)
    params, static = eqx.partition(policy, eqx.is_inexact_array)

    def experiments(p: Any, key: Any) -> Any:
        acting = eqx.combine(p, static)
        return jax.vmap(lambda k: simulate(task, acting, key=k))(jr.split(key, batch))

    runs = eqx.filter_jit(experiments)(params, KEY)
    return Step(
        f"{name}, policy ({values['policy']}, batch {batch})",
        (policy_gradient(static, task, score, batch=batch, trajectory_clip=clip), (params, KEY)),
        {
            "experiments": (experiments, (params, KEY)),
            "score": (lambda ys, xis: jax.vmap(score)(ys, xis), (runs.ys, runs.xis)),
        },
    )


def peak(size: int, rounds: int) -> float:
    """Operations a second of a product of matrices."""
    a = jr.normal(KEY, (size, size))
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / best_of(rounds, lambda: product(a))[0]


def measure(step: Step, top: float, rounds: int) -> list[str]:
    """A row of the table."""
    works = [step.whole, *step.parts.values()]
    compiled = [(jax.jit(function), given) for function, given in works]
    whole, *parts = best_of(
        rounds, *(lambda f=function, g=given: f(*g) for function, given in compiled)
    )
    work = flops(*_called(step.whole))
    rest = max(0.0, whole - sum(parts))
    shares = {name: part / whole for name, part in zip(step.parts, parts, strict=True)} | {
        "way back": rest / whole
    }
    dominant = max(shares, key=lambda name: shares[name])
    words = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    figures = [
        f"{1e3 * whole:.1f}",
        f"{work / 1e9:.2f}",
        f"{work / whole / 1e9:.1f}",
        f"{work / whole / top:.2f}",
    ]
    return [step.name, *figures, dominant, words]


def _called(work: tuple[Callable[..., Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    function, given = work
    return (function, *given)


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    rounds = 1 if quick else ROUNDS
    top = peak(64 if quick else 2048, rounds)
    print(f"steps; scorebed {scorebed.__version__}, jax {jax.__version__}; ", end="")
    print(f"the peak is {top / 1e9:.0f}·10⁹ operations a second, {jnp.zeros(()).dtype}")
    names = ("linear-gaussian",) if quick else TASKS
    steps = [make(name, small=quick) for name in names for make in (score_step, policy_step)]
    rows = [measure(step, top, rounds) for step in steps]
    table(("step", "ms", "10⁹ operations", "10⁹/s", "of the peak", "most of it", "parts"), rows)


if __name__ == "__main__":
    main()
