"""The posterior after the first steps of an experiment, as the prior of the others.

Tempered SMC gives particles of p(θ | h) in the latent coordinates z of the prior, θ = f(z); a
Gaussian mixture is fitted to them there (`tasks/sample_prior.py`), so that draws keep to the
support of the prior. The mixture is an approximation: bounds and scores of the continued task are
those of that prior."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from scorebed.errors import InvalidValueError, require
from scorebed.inference.smc import tempered_smc
from scorebed.tasks.base import Task
from scorebed.tasks.continued import continued
from scorebed.tasks.sample_prior import LatentMixture, Mixture, fit_mixture

PARTICLES = 2048


def learn_history(
    task: Task, xis: Sequence[Sequence[float]], ys: Sequence[Sequence[float]], *, key: PRNGKeyArray
) -> Mixture:
    """The mixture of z after a history. About 2048·t·(1 + levels·moves) NLE."""
    require(
        task.has_density,
        "a history",
        got=f"{type(task).__name__}, which has no density",
        expected="a likelihood to learn from it by",
        fix="write log_prob.",
    )
    smc = eqx.filter_jit(
        lambda ys, xis, key: tempered_smc(task, ys, xis, particles=PARTICLES, key=key)
    )
    found = smc(jnp.asarray(ys, jnp.float32), jnp.asarray(xis, jnp.float32), key)
    z = np.asarray(found.z, np.float64)
    if not np.isfinite(z).all() or not np.isfinite(float(found.log_evidence)):
        raise InvalidValueError(
            "the history of an experiment",
            got="outcomes that no parameters of the prior can have made",
            expected="outcomes that the model allows",
            fix="check their units and columns, or widen the prior.",
        )
    return fit_mixture(z)


def continue_after(
    task: Task, xis: Sequence[Sequence[float]], ys: Sequence[Sequence[float]], *, key: PRNGKeyArray
) -> Task:
    """The rest of an experiment whose first steps are over: fewer steps, and the posterior so far
    as the prior. About 2048·t·(1 + levels·moves) NLE.

    Arguments:
        task: the whole experiment; it needs a density.
        xis: the designs so far, [t, dx].
        ys: the outcomes so far, [t, dy].
        key: the random key.

    Returns:
        A task with T − t steps. Its prior is a Gaussian mixture fitted to particles.

    Raises:
        InvalidValueError: if the history does not fit the task, leaves no step, or is impossible
            under the prior; or if the task has no density.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> rest = sb.continue_after(task, [[1.0]], [[0.5]], key=jr.key(0))
        >>> rest.horizon
        2
    """
    # Refuses a wrong history before anything is computed.
    blank = continued(task, task.prior, xis, ys)
    return eqx.tree_at(
        lambda t: t.prior, blank, LatentMixture(task.prior, learn_history(task, xis, ys, key=key))
    )
