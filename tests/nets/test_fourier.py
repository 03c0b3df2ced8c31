"""Random Fourier features: the kernel that they stand for, and frequencies that stay."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.nets import FourierFeatures
from scorebed.nets.fourier import CYCLE


@pytest.mark.parametrize("unit", [1.0, CYCLE])
def test_inner_products_are_the_gaussian_kernel(unit):
    """E⟨γ(u), γ(v)⟩ = (features/2) exp(−σ²‖u − v‖²/2), σ in radians: catches a 2π too many or too
    few, or a σ² for σ, which move it by more than 0.2.
    """
    sigma, n = 2.5, 4000
    features = FourierFeatures(2, 2 * n, sigma=2.5 / unit, unit=unit, key=jr.key(0))
    u, v = np.array([0.3, -0.2], np.float32), np.array([0.5, 0.1], np.float32)
    a, b = (np.asarray(features(jnp.asarray(x)), np.float64).reshape(2, n) for x in (u, v))
    terms = (a * b).sum(0)
    truth = np.exp(-(sigma**2) * np.square(u - v).sum() / 2)
    assert abs(terms.mean() - truth) <= 4.892 * terms.std() / np.sqrt(n)


def test_features_are_cosines_then_sines_of_full_turns_where_they_count_cycles(filled):
    features = filled(lambda key: FourierFeatures(1, 4, sigma=1.0, unit=CYCLE, key=key))
    features = eqx.tree_at(lambda f: f.frequencies, features, jnp.array([[1.0, 0.5]]))
    np.testing.assert_allclose(features(jnp.array([0.5])), [-1, 0, 0, 1], atol=1e-6)


def test_frequencies_are_not_trained_and_inputs_are_differentiable(filled):
    features = filled(lambda key: FourierFeatures(2, 8, sigma=1.0, key=key))
    grads, dv = jax.jit(jax.grad(lambda f, v: f(v).sum(), argnums=(0, 1)))(
        features, np.ones(2, np.float32)
    )
    assert not np.asarray(grads.frequencies).any()
    assert np.abs(dv).min() > 0


def test_odd_features_are_refused():
    with pytest.raises(InvalidValueError, match="even number"):
        FourierFeatures(1, 7, sigma=1.0, key=jr.key(0))
