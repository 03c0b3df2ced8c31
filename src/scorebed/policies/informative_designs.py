"""Where a measurement is most informative if z is roughly known, as linear functions of z.

For draws z of the prior, find the design whose outcome depends on z most,

    ξ*(z) = argmax_ξ ½ log det(I + H Hᵀ),   H = ∂(mean / scale)/∂z at (z, ξ),

and the pairs (z, ξ*) are explained by a few linear maps, each pair by the map that fits it best (a
mixture of regressions). In location finding two of them are the places of the two sources, exactly.
Given an estimate of z they say where to look: `policies/modes.py` starts from these maps.

For independent steps with Gaussian outcomes: elsewhere the best design depends on a state that is
not there yet. About DRAWS · (CANDIDATES + ASCENT) NLE, once for a policy."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.tasks.base import Gaussian, Task

DRAWS, CANDIDATES, ASCENT = 1024, 64, 60
SPREAD = 1.5  # of the candidates, in units of the space
STEP, LAST = 0.1, 1e-3  # length of the first step uphill, and of the last one relative to it
TRIES, ROUNDS, RIDGE = 8, 20, 1e-3


def anchors(
    task: Task, count: int, *, key: PRNGKeyArray
) -> tuple[Float[Array, "h dx k"], Float[Array, "h dx"]]:
    """`count` maps A and shifts b with ξ* ≈ constrain(A z + b) for one of them."""
    key_z, key_u, key_maps = jr.split(key, 3)
    z = jr.normal(key_z, (DRAWS, task.prior.dim))
    u = jax.vmap(lambda z, key: _most_telling(task, z, key=key))(z, jr.split(key_u, DRAWS))
    x = jnp.concatenate([z, jnp.ones((DRAWS, 1))], axis=1)
    maps, errors = jax.vmap(lambda key: _regressions(x, u, count, key=key))(
        jr.split(key_maps, TRIES)
    )
    best = maps[errors.argmin()].transpose(0, 2, 1)
    return best[..., :-1], best[..., -1]


def _information(task: Task, z: Float[Array, " k"], u: Float[Array, " dx"]) -> Scalar:
    """½ log det(I + H Hᵀ) of one outcome at the design constrain(u)."""
    assert isinstance(task, Gaussian)
    xi = task.designs.constrain(u)

    def standardised(z: Array) -> Array:
        theta = task.prior.from_latent(z)
        return task.mean(theta, None, xi) / jnp.stack(
            [jnp.asarray(s, z.dtype) for s in task.scale(theta, None, xi)]
        )

    h = jax.jacfwd(standardised)(z)
    return 0.5 * jnp.linalg.slogdet(jnp.eye(len(h), dtype=h.dtype) + h @ h.T)[1]


def _most_telling(task: Task, z: Float[Array, " k"], *, key: PRNGKeyArray) -> Float[Array, " dx"]:
    """The best of some random designs, and from there uphill by steps of a length that shrinks."""
    first = SPREAD * jr.normal(key, (CANDIDATES, task.designs.dim))
    u = first[jax.vmap(lambda u: _information(task, z, u))(first).argmax()]

    def uphill(u: Array, length: Array) -> tuple[Array, None]:
        slope = jax.grad(lambda u: _information(task, z, u))(u)
        norm = jnp.linalg.norm(slope)
        return u + length * slope / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny), None

    found, _ = jax.lax.scan(uphill, u, STEP * LAST ** jnp.linspace(0, 1, ASCENT))
    return jnp.where(_information(task, z, found) > _information(task, z, u), found, u)


def _regressions(
    x: Float[Array, "n f"], u: Float[Array, "n dx"], count: int, *, key: PRNGKeyArray
) -> tuple[Float[Array, "h f dx"], Scalar]:
    """A mixture of linear regressions by expectation–maximisation from random shares, and its
    median error.
    """

    def fit(share: Float[Array, " n"]) -> Float[Array, "f dx"]:
        weighed = (x * share[:, None]).T
        return jnp.linalg.solve(weighed @ x + RIDGE * jnp.eye(x.shape[1]), weighed @ u)

    def errors(maps: Float[Array, "h f dx"]) -> Float[Array, "n h"]:
        return ((jnp.einsum("nf,hfd->nhd", x, maps) - u[:, None]) ** 2).sum(-1)

    def improve(share: Array, _: None) -> tuple[Array, None]:
        error = errors(jax.vmap(fit, in_axes=1)(share))
        width = jnp.maximum(jnp.median(error.min(1)), jnp.finfo(error.dtype).eps)
        return jax.nn.softmax(-0.5 * error / width, axis=1), None

    start = jax.nn.softmax(3 * jr.normal(key, (len(x), count)), axis=1)
    share, _ = jax.lax.scan(improve, start, None, length=ROUNDS)
    maps = jax.vmap(fit, in_axes=1)(share)
    return maps, jnp.median(errors(maps).min(1))
