"""GELU with its derivatives written out: the function and the derivatives of `jax.nn.gelu`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorebed.nets.mlp import gelu

POINTS = np.linspace(-12, 12, 241)


def standard(x):
    return jax.nn.gelu(x, approximate=True)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_it_and_its_derivatives_are_those_of_jax(order):
    ours, theirs = gelu, standard
    for _ in range(order):
        ours, theirs = jax.grad(ours), jax.grad(theirs)
    np.testing.assert_allclose(
        jax.vmap(ours)(jnp.asarray(POINTS)), jax.vmap(theirs)(jnp.asarray(POINTS)), atol=1e-10
    )


def test_it_is_finite_far_out():
    far = jnp.asarray([-1e4, -100.0, 0.0, 100.0, 1e4])
    for function in (gelu, jax.grad(gelu), jax.grad(jax.grad(gelu))):
        assert jnp.isfinite(jax.vmap(function)(far)).all()
    np.testing.assert_allclose(gelu(far), jnp.maximum(far, 0))
