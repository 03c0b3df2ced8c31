"""A step of the score and a step of a policy against their own floating-point work, and what their
time goes into.

Sizes are those of the preset `quick`. The work of a step is counted from its program (flops.py) and
divided by the time it takes; the peak is that of a product of matrices of the same type, measured
in the same run. What is not made of products of matrices cannot come near it: likelihoods, and the
small networks of a policy, step by step.

The second table has the networks of the paper, the conservative transformer and the variational
posterior: forward and backward of a loss on given experiments, at the paper's width and at that of
a small re-run, against the same network of Equinox's own layers (straightforward.py; both compute
the same numbers, which is checked). Times there are those of all cores together.

Parts are programs of their own, timed turn by turn with the whole: simulated experiments; the score
of them, or the loss that trains it; and what is left of the whole step, which is the way back.

    make bench, or: python benchmarks/steps.py            about five minutes, most of it compilation
    python benchmarks/steps.py --quick                    does it run?
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flops import flops
from measuring import arguments, best_of, table
from scorebed.densities.mixture_posterior import MixturePosterior
from scorebed.presets.reader import preset_values
from scorebed.policies import make_policy
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import simulate
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score, score_kind
from scorebed.scores.base import Score
from scorebed.scores.conservative import Transformer
from scorebed.scores.standardise import standardiser
from scorebed.tasks import make_task
from scorebed.tasks.base import Task
from scorebed.training.fit import gradient_of
from scorebed.training.policy import policy_gradient
from scorebed.training.matching import Weights, automatic_weights, matching_terms, score_loss
from straightforward import straightforward

KEY = jr.key(0)
TASKS = ("location-finding", "pendulum")
ROUNDS = 6
PAPER, SMALL = (256, 4, 8, 32), (64, 2, 4, 64)  # width, blocks, heads, batch


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


class Network(NamedTuple):
    """A network of the paper: its name, itself, and the terms of its loss."""

    name: str
    network: Any
    terms: Callable[[Any], dict[str, Any]]


def networks(name: str, sizes: tuple[int, int, int, int]) -> list[Network]:
    """The score and the posterior of a task, on a batch of experiments."""
    width, blocks, heads, batch = sizes
    task = make_task(name)
    sampler = paper_sampler(task)
    kind = Transformer(width=width, blocks=blocks, heads=heads)
    standardise = kind.standardiser(task, sampler, key=KEY)

    @eqx.filter_jit
    def experiments(key: Any) -> Any:
        return jax.vmap(lambda k: simulate(task, RandomDesigns(sampler), key=k))(
            jr.split(key, batch)
        )

    runs, latents = experiments(KEY), jr.normal(KEY, (batch, task.prior.dim))
    plain = Weights(jnp.ones(()), jnp.ones(()), 0.0)
    posterior = MixturePosterior(
        task, standardise, width=width, blocks=max(1, blocks - 1), heads=4, key=KEY
    )

    def bound(density: Any) -> dict[str, Any]:
        each = jax.vmap(lambda z, ys, xis: density.log_prob(z, ys, xis))
        return {"bound": -each(latents, runs.ys, runs.xis).mean()}

    words = f"width {width}, batch {batch}"
    return [
        Network(
            f"{name}, score, {words}",
            kind.make(task, standardise, key=KEY),
            lambda score: matching_terms(score, task, runs, plain),
        ),
        Network(f"{name}, posterior, {words}", posterior, bound),
    ]


def compare(one: Network, rounds: int) -> list[str]:
    """A row of the second table."""
    works, work = [], []
    for network in (one.network, straightforward(one.network)):
        params, static = eqx.partition(network, eqx.is_inexact_array)

        def gradient(params: Any, static: Any = static) -> Any:
            return gradient_of(lambda p, _: one.terms(eqx.combine(p, static)))(params, KEY)

        compiled = jax.jit(gradient)
        works.append(lambda f=compiled, p=params: f(p))
        work.append(flops(gradient, params))
    ours, theirs = (works[i]()[0] for i in range(2))
    for name in ours:
        assert jnp.allclose(ours[name], theirs[name], rtol=1e-3), (name, ours, theirs)
    a = jr.normal(KEY, (2048, 2048))
    product = jax.jit(lambda a: a @ a)
    clock = {"clock": time.process_time}
    mine, their, top = best_of(rounds, *works, lambda: product(a), **clock)
    rate = 2 * 2048**3 / top
    return [
        one.name,
        f"{work[0] / 1e9:.2f}",
        f"{their / mine:.2f}",
        f"{work[0] / mine / rate:.2f}",
        f"{work[1] / their / rate:.2f}",
    ]


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
    sizes = [(16, 1, 2, 4)] if quick else [PAPER, SMALL]
    pairs = [
        compare(one, rounds) for name in names for size in sizes for one in networks(name, size)
    ]
    table(("network", "10⁹ operations", "times Equinox's", "of the peak", "Equinox's"), pairs)


if __name__ == "__main__":
    main()
