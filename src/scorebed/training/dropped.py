"""Trajectories that are not finite: dropped from a step and counted.

A model may overflow at a rare draw of its prior, or where a score looks. One such trajectory in a
thousand, or one in a smaller batch, is left out of the mean and counted in the term `dropped`; a
step with more of them has terms that are NaN, so that it is not applied, and five such steps in a
row end the training (`training/fit.py`).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

# Not a part of the loss: the number of trajectories that a step left out.
DROPPED = "dropped"
ONE_IN = 1000


def allowed(batch: int) -> int:
    """Trajectories of a batch that may be dropped."""
    return max(1, batch // ONE_IN)


def mean_of_finite(terms: dict[str, Float[Array, " N"]]) -> dict[str, Scalar]:
    """The means of some terms over the trajectories at which all are finite, and how many were
    dropped; all NaN if these are more than are allowed.
    """
    good = jnp.isfinite(jnp.stack(list(terms.values()))).all(0)
    means = {name: jnp.where(good, each, 0).sum() for name, each in terms.items()}
    return share_of_good(means, good)


def share_of_good(sums: dict[str, Scalar], good: Bool[Array, " N"]) -> dict[str, Scalar]:
    """Sums over good trajectories as means, with the number of the others."""
    count = good.sum()
    bad = len(good) - count
    fine = (bad <= allowed(len(good))) & (count > 0)

    def mean(total: Scalar) -> Scalar:
        return jnp.where(fine, total / jnp.maximum(count, 1).astype(total.dtype), jnp.nan)

    dtype = next(iter(sums.values())).dtype
    return jax.tree.map(mean, sums) | {DROPPED: bad.astype(dtype)}
