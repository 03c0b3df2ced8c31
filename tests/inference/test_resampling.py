"""Resampling: indices as often as their weights say, and never an index of weight zero."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.inference.resampling import (
    effective_sample_size,
    multinomial_resample,
    normalised_sample_size,
    systematic_resample,
)

Z_ALARM = 5.0  # for each of 2 · 4 counts: a false alarm in two hundred thousand


@pytest.mark.parametrize("resample", [systematic_resample, multinomial_resample])
def test_indices_come_as_often_as_their_weights_say(resample):
    # Weights of another total; a weight off by a hundredth would be seen.
    weights, draws, runs = jnp.asarray([0.0, 1.0, 2.0, 5.0, 0.0]), 10, 4000
    found = np.asarray(
        jax.jit(jax.vmap(lambda key: resample(key, weights, draws)))(jr.split(jr.key(0), runs))
    )
    share = np.asarray(weights / weights.sum())
    counts = np.bincount(found.ravel(), minlength=5)
    error = np.sqrt(runs * draws * share * (1 - share))
    assert (np.abs(counts - runs * draws * share) <= Z_ALARM * error).all()
    assert counts[[0, 4]].sum() == 0


def test_multinomial_draws_are_independent_and_systematic_ones_are_not():
    # Of ten draws of a fair coin, the count has a variance of 2.5, or none.
    def variance(resample):
        keys = jr.split(jr.key(1), 4000)
        each = jax.jit(jax.vmap(lambda key: resample(key, jnp.ones(2), 10).sum()))(keys)
        return float(np.asarray(each).var())

    assert variance(systematic_resample) == 0
    assert abs(variance(multinomial_resample) - 2.5) < 0.4  # seven standard errors


def test_both_sample_sizes_agree_on_normalised_weights():
    log_weights = jax.nn.log_softmax(jr.normal(jr.key(0), (3, 20)))
    each = jnp.stack([effective_sample_size(row) for row in log_weights])
    np.testing.assert_allclose(normalised_sample_size(log_weights), each, rtol=1e-5)
