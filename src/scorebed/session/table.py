"""Policies that hold a table of designs, one row per measurement: they have none past the last, and
can be given more.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from scorebed.policies.base import Policy
from scorebed.policies.constrained import Constrained
from scorebed.policies.plan import Plan
from scorebed.policies.static import Static


def lacks_designs(policy: Policy, measurements: int) -> bool:
    """Whether a policy has designs for fewer measurements than that. Those without a table always
    have one more.
    """
    table = _table(policy)
    return table is not None and len(table) < measurements


def extended(policy: Policy, horizon: int, trained: int, *, key: PRNGKeyArray) -> Policy:
    """A policy with a table for `horizon` steps, or the `trained` ones if they are more: rows that
    it lacks are drawn at random, as wide as the others. Any other policy as it is.
    """
    table = _table(policy)
    if table is None:
        return policy
    rows = max(horizon, trained)
    spread = jnp.maximum(table.std(), jnp.finfo(table.dtype).eps)
    further = spread * jr.normal(key, (max(rows - len(table), 0), table.shape[1]), table.dtype)
    longer: Policy = eqx.tree_at(_table, policy, jnp.concatenate([table[:rows], further]))
    return longer


def _table(policy: Policy) -> Any:
    """The array of a table, or what `equinox.tree_at` has in its place; None where there is
    none.
    """
    inside = policy.inside if isinstance(policy, Constrained) else policy
    if isinstance(inside, Static):
        return inside.us
    return inside.table if isinstance(inside, Plan) else None
