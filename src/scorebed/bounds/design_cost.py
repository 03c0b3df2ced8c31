"""What the designs of a policy cost on average: reported next to the bounds of its EIG, and taken
off only where policies are compared.
"""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.bounds.base import Bound
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import simulate
from scorebed.tasks.base import Task
from scorebed.tasks.cost import DesignCost


class ExpectedCost(eqx.Module):
    """The mean cost of an experiment in the unit of the cost, its standard error, and its worth in
    nats.
    """

    mean: float
    se: float
    nats: float


def expected_cost(
    task: Task, policy: Policy, *, outer: int = 2048, key: PRNGKeyArray
) -> ExpectedCost:
    """E Σ_t cost(ξ_t) from `outer` simulated experiments; nothing is simulated where designs cost
    nothing.
    """
    if task.cost is None:
        return ExpectedCost(0.0, 0.0, 0.0)
    each = np.asarray(_costs(task, policy, task.cost, outer, named(key, "cost")), np.float64)
    mean = float(each.mean())
    return ExpectedCost(mean, float(each.std(ddof=1) / len(each) ** 0.5), task.cost.price * mean)


def net_gain(
    bound: Bound, task: Task, policy: Policy, *, outer: int, inner: int, key: PRNGKeyArray
) -> float:
    """A lower bound to train and choose by, minus what the designs cost, in nats.

    A contrastive bound cannot tell policies apart that gain more than log(inner + 1) nats; one by
    importance can."""
    found = bound(task, policy, outer=outer, inner=inner, key=key)
    return found.lower - expected_cost(task, policy, outer=outer, key=key).nats


@eqx.filter_jit
def _costs(
    task: Task, policy: Policy, cost: DesignCost, outer: int, key: PRNGKeyArray
) -> Float[Array, " N"]:
    return jax.vmap(lambda k: cost.total(simulate(task, policy, key=k).xis))(jr.split(key, outer))
