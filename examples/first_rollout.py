"""Random designs on three tasks, and their information: python examples/first_rollout.py [FOLDER]

Experiments are simulated and drawn. Draws from the prior are then weighted by their likelihoods,
which gives the posterior p(θ | y, ξ) of each experiment and its information gain,
KL(posterior ‖ prior), in nats. No policy is trained."""

import math
import pathlib
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import scorebed as sb
from scorebed.keys import named
from scorebed.nle import Ledger

TASKS = ("location-finding", "pendulum", "gravimetry")
EXPERIMENTS, DRAWS, DRAWN = 16, 100_000, 3


@eqx.filter_jit
def simulate_many(task, policy, *, key):
    """`EXPERIMENTS` experiments in one batch."""
    return jax.vmap(lambda k: sb.simulate(task, policy, key=k))(jr.split(key, EXPERIMENTS))


@eqx.filter_jit
def posterior_weights(task, thetas, runs):
    """Weights of prior draws, one row per experiment. EXPERIMENTS · DRAWS · T NLE."""
    log_lik = jax.vmap(lambda ys, xis: sb.log_likelihoods(task, thetas, ys, xis))(runs.ys, runs.xis)
    return jax.nn.softmax(log_lik, axis=1)


def information_gain(weights):
    """KL(posterior ‖ prior) of each experiment; too small if it comes close to log DRAWS."""
    return math.log(weights.shape[1]) + jax.scipy.special.xlogy(weights, weights).sum(1)


def main(folder: pathlib.Path, names: tuple[str, ...] = TASKS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ledger, key = Ledger(), jr.key(1)
    for name in names:
        start = time.perf_counter()
        task = sb.make_task(name)
        policy = sb.make_policy("random", task, key=named(key, name, "policy"))
        runs = simulate_many(task, policy, key=named(key, name, "runs"))
        thetas = jax.vmap(lambda k, task=task: task.prior.sample(key=k))(
            jr.split(named(key, name, "prior"), DRAWS)
        )

        ledger.charge(name, EXPERIMENTS * DRAWS * task.horizon)
        weights = posterior_weights(task, thetas, runs)
        gains = information_gain(weights)
        print(
            f"\n{name}: {EXPERIMENTS} experiments of {task.horizon} random designs, "
            f"{time.perf_counter() - start:.1f} s"
        )
        print(
            f"  information gain {gains.mean():.2f} nats on average, {gains.min():.2f} to "
            f"{gains.max():.2f}"
        )

        singles = [jax.tree.map(lambda a, i=i: a[i], runs) for i in range(DRAWN)]
        if task.exchangeable == 1:  # means of sources that can be exchanged say nothing
            mean = weights[0] @ thetas
            spread = jnp.sqrt(weights[0] @ (thetas - mean) ** 2)
            print(f"  the first of them   {'truth':>10} {'posterior':>10}")
            for quantity, t, m, s in zip(
                task.prior.quantities, singles[0].theta, mean, spread, strict=True
            ):
                print(f"  {quantity!s:<19} {t:>10.4g} {m:>10.4g} ± {s:.3g}")

        picture = folder / f"random-{name}.png"
        sb.draw_experiments(task, singles).savefig(picture, dpi=110)
        print(f"  drawn to {picture}")
    print(f"\n{ledger.spent:,} likelihood evaluations in all")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
