"""What the designs of a policy cost on average: reported beside the bounds of its EIG, never mixed
into them.
"""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import simulate
from scorebed.tasks.base import Task
from scorebed.tasks.cost import DesignCost


class ExpectedCost(eqx.Module):
    """The mean cost of an experiment in the cost's own unit, its standard error, and what it comes
    to in nats.
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


@eqx.filter_jit
def _costs(
    task: Task, policy: Policy, cost: DesignCost, outer: int, key: PRNGKeyArray
) -> Float[Array, " N"]:
    return jax.vmap(lambda k: cost.total(simulate(task, policy, key=k).xis))(jr.split(key, outer))
