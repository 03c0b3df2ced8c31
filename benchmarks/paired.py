"""Policies in the same experiments: tight lower bounds, differences to the first with their errors,
and what a design costs.

Every policy meets the same parameters and the same noise, so that differences are far surer than
the bounds; where policies lead to other experiments early, less so. A policy is one of

    a name                           of a policy, untrained, or myopic
    the folder of a run              its policy
    receding-horizon:first           the sequence that it starts from, without feedback
    receding-horizon:FOLDER          the same policy, which starts from the trained plan of a run

`--bound importance-laplace` takes Gaussians at the modes for proposals, which is quickest for
driven systems; otherwise the bound is the one that is tight for the task. `--save` keeps what was
found in every experiment, and takes over what was found before in the same ones.

**Smoothed.** With importance bounds there is a second difference. Of a bound's value in one
experiment, log p(y|θ₀)/p(y), two parts have a known mean: given the outcomes, θ₀ is a draw of the
posterior, and E|z|² over all experiments is k. Their noise is taken out:

    E[log p(y|θ) | y, ξ] − log p(y|ξ) − ½ (E[|z|² | y, ξ] − k)

with posterior means from the same kind of draws as the bound's, weighed, so that its expectation is
the EIG but for the error of weighed means, of order 1/M. It is no bound; the errors of its
differences are a fraction of theirs.

    make bench, or: python benchmarks/paired.py            location finding, about ten minutes
    python benchmarks/paired.py gravimetry lookahead modes runs/gravimetry-score-1 --outer 512
    python benchmarks/paired.py --quick                    does it run?
"""

import functools
import time
from pathlib import Path
from typing import NamedTuple

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from measuring import arguments, best_of, table
from scorebed.baselines.myopic import Myopic
from scorebed.bounds import make_bound, tight_bounds
from scorebed.bounds.importance import (
    Propose,
    latent_experiment,
    trajectory_bounds,
    usual_proposal,
)
from scorebed.inference.gaussian_mixture import standard_normal_log_prob
from scorebed.inference.laplace import laplace_posterior
from scorebed.keys import named
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.policies.informative_plans import designs_at
from scorebed.policies.plan import UNIT
from scorebed.policies.receding_horizon import RecedingHorizon
from scorebed.policies.static import Static
from scorebed.rollout import log_likelihoods
from scorebed.tasks import make_task
from scorebed.tasks.base import Task

GROUP = 16  # experiments at once
PLANNER = "receding-horizon:"


@functools.cache
def planner(task: Task) -> RecedingHorizon:
    """Made once, since it searches."""
    return RecedingHorizon(task, key=jr.key(0))


def policy_of(name: str, task: Task) -> Policy:
    """That of a run, or a new one."""
    if name.startswith(PLANNER):
        return started_from(name.removeprefix(PLANNER), task)
    if Path(name).is_dir():
        return scorebed.load(name).policy
    if name == "myopic":
        return Myopic(task, key=jr.key(0))
    return planner(task) if name == PLANNER[:-1] else make_policy(name, task, key=jr.key(0))


def started_from(start: str, task: Task) -> Policy:
    """The first sequence alone, or the policy with that of a trained plan in front."""
    plans = planner(task).plans
    if start == "first":
        return Static.from_designs(designs_at(task.designs, plans[0]), task.designs)
    designs = jax.vmap(task.designs.constrain)(UNIT * scorebed.load(start).policy.table)
    low, high = (jnp.asarray(end) for end in task.designs.limits)
    trained = 2 * (designs - low) / (high - low) - 1
    return RecedingHorizon(task, plans=jnp.stack([trained, *plans[:-1]]), key=jr.key(0))


class Found(NamedTuple):
    """Of every experiment: both bounds, and the smoothed information, where there is one."""

    lower: np.ndarray
    upper: np.ndarray
    smoothed: np.ndarray | None


@eqx.filter_jit
def experiments(task: Task, policy: Policy, numbers: Array, key: Array) -> tuple[Array, ...]:
    """Latent parameters, outcomes and designs: those of `importance_bounds` with this key."""

    def one(number: Array) -> tuple[Array, ...]:
        return latent_experiment(task, policy, key=named(jr.fold_in(key, number), "run"))

    return jax.vmap(one)(numbers)


@eqx.filter_jit
def judged(
    task: Task,
    propose: Propose,
    inner: int,
    numbers: Array,
    data: tuple[Array, ...],
    key: Array,
) -> tuple[Array, Array, Array]:
    """Bounds, and the smoothed information."""

    def one(number: Array, z: Array, ys: Array, xis: Array) -> tuple[Array, Array, Array]:
        base = named(jr.fold_in(key, number), "bounds")
        bounds = trajectory_bounds(task, z, ys, xis, propose=propose, inner=inner, key=base)
        density, _ = propose(task, ys, xis, key=named(base, "proposal"))
        draws = jax.vmap(lambda key: density.sample(key=key))(jr.split(named(base, "z"), inner))
        fits = log_likelihoods(task, jax.vmap(task.prior.from_latent)(draws), ys, xis)
        log_w = jax.vmap(standard_normal_log_prob)(draws) - jax.vmap(density.log_prob)(draws) + fits
        share, k = jax.nn.softmax(log_w), draws.shape[-1]
        told = share @ fits - (jax.nn.logsumexp(log_w) - jnp.log(inner))
        return bounds.lower, bounds.upper, told - 0.5 * (share @ (draws**2).sum(-1) - k)

    return jax.lax.map(lambda row: one(*row), (numbers, *data), batch_size=4)


def in_experiments(
    task: Task, policy: Policy, bound: str, outer: int, inner: int | None, seed: int
) -> Found:
    """What a policy has in each of them; those of importance bounds are in groups of equal size."""
    key = jr.key(seed)
    if not task.can_order_blocks:  # SMC
        groups = tight_bounds(task, policy, outer=outer, inner=inner, key=key).groups
        return Found(np.asarray(groups.lower), np.asarray(groups.upper), None)
    laplace = bound == "importance-laplace"
    propose = laplace_posterior if laplace else usual_proposal
    draws = make_bound("importance").inner if inner is None else inner
    rows = []
    for first in range(0, outer, GROUP):
        numbers = jnp.arange(first, first + GROUP)
        data = experiments(task, policy, numbers, key)
        rows.append(judged(task, propose, draws, numbers, data, key))
    return Found(*(np.concatenate(column)[:outer] for column in zip(*rows, strict=True)))


def mean(values: np.ndarray, sign: str = "") -> str:
    """With its standard error."""
    return f"{values.mean():{sign}.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def difference(found: Found, first: Found) -> list[str]:
    """To the first policy, in the experiments that both have."""
    count = min(len(found.lower), len(first.lower))
    pairs = (found.lower, first.lower), (found.smoothed, first.smoothed)
    return ["" if a is None or b is None else mean(a[:count] - b[:count], "+") for a, b in pairs]


def milliseconds(task: Task, policy: Policy, rounds: int) -> float:
    """CPU time of taking in an outcome and making the next design, for one experiment."""

    @eqx.filter_jit
    def step(policy, memory, xi, y, noise):
        memory = policy.update(memory, xi, y)
        return policy.design(memory, noise)

    noise = policy.sample_noise(task.horizon, key=jr.key(0))[1]
    xi, y = jnp.zeros(task.designs.dim), jnp.zeros(task.outcome_dim)
    work = lambda: step(policy, policy.init(), xi, y, noise)  # noqa: E731
    return 1e3 * best_of(rounds, work, clock=time.process_time)[0]


def main() -> None:
    """A row for every policy."""
    parser = arguments(__doc__)
    parser.add_argument("task", nargs="?", default="location-finding")
    parser.add_argument("policies", nargs="*", default=["lookahead", "modes", "random"])
    parser.add_argument("--outer", type=int, default=256, help="experiments")
    parser.add_argument("--inner", type=int, help="draws of a proposal; the bound's if left out")
    parser.add_argument("--bound", default="tight", choices=["tight", "importance-laplace"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="a folder for what was found")
    args = parser.parse_args()
    task = make_task(args.task, **({"horizon": 2} if args.quick else {}))
    outer, rounds = (2, 1) if args.quick else (args.outer, 5)
    first: Found | None = None
    rows = []
    for name in args.policies:
        file = args.save and args.save / f"{args.task}-{name.replace('/', '-')}.npz"
        policy = policy_of(name, task)
        if file and file.exists():
            kept = np.load(file)
            found = Found(kept["lower"], kept["upper"], kept.get("smoothed"))
        else:
            found = in_experiments(task, policy, args.bound, outer, args.inner, args.seed)
        if file:
            file.parent.mkdir(exist_ok=True)
            np.savez(file, **{k: v for k, v in found._asdict().items() if v is not None})
        first = found if first is None else first
        smoothed = "" if found.smoothed is None else mean(found.smoothed)
        apart = difference(found, first) if rows else ["", ""]
        speed = f"{milliseconds(task, policy, rounds):.1f}"
        upper = f"{found.upper.mean():.3f}"
        rows.append([Path(name).name, len(found.lower), mean(found.lower), upper, smoothed])
        rows[-1] += [*apart, speed]
        print(*rows[-1], flush=True)
        jax.clear_caches()
    columns = ["N", "lower", "upper", "smoothed", "to the first", "smoothed", "ms a design"]
    table([args.task, *columns], rows)


if __name__ == "__main__":
    main()
