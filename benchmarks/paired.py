"""Policies in the same experiments: tight lower bounds, differences to the first with their errors,
and what a design costs.

Every policy meets the same parameters and the same noise, so that differences are far surer than
the bounds; where policies lead to other experiments early, less so. A policy is a name, which is
made untrained, or the folder of a run. `--save` keeps the lower bound of every experiment.

    make bench, or: python benchmarks/paired.py            location finding, about ten minutes
    python benchmarks/paired.py gravimetry lookahead modes runs/gravimetry-score-1 --outer 512
    python benchmarks/paired.py --quick                    does it run?
"""

import time
from pathlib import Path

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from measuring import arguments, best_of, table
from scorebed.bounds import tight_bounds
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.tasks import make_task
from scorebed.tasks.base import Task


def policy_of(name: str, task: Task) -> Policy:
    """That of a run, or a new one."""
    if Path(name).is_dir():
        return scorebed.load(name).policy
    return make_policy(name, task, key=jr.key(0))


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="a .npz of the bounds of every experiment")
    args = parser.parse_args()
    task = make_task(args.task, **({"horizon": 2} if args.quick else {}))
    outer, rounds = (2, 1) if args.quick else (args.outer, 5)
    each: dict[str, np.ndarray] = {}
    rows = []
    for name in args.policies:
        policy = policy_of(name, task)
        found = tight_bounds(task, policy, outer=outer, key=jr.key(args.seed))
        each[name] = np.asarray(found.groups.lower)  # a group is one trajectory
        gap = each[name] - each[args.policies[0]]
        difference = f"{gap.mean():+.3f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.3f}"
        rows.append(
            [
                Path(name).name,
                f"{found.lower:.3f} ± {found.lower_se:.3f}",
                f"{found.upper:.3f}",
                difference if len(rows) else "",
                f"{milliseconds(task, policy, rounds):.1f}",
            ]
        )
        print(*rows[-1], flush=True)
        jax.clear_caches()
    if args.save:
        np.savez(args.save, **{Path(name).name: values for name, values in each.items()})
    table([f"{args.task}, N = {outer}", "lower", "upper", "to the first", "ms a design"], rows)


if __name__ == "__main__":
    main()
