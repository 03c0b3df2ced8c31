"""The transformer policy: its running attention against a whole encoder layer, its symmetry and its
size.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.policies.attention import AttentionPolicy
from scorebed.tasks.library.gravimetry import Gravimetry


@pytest.fixture(scope="module")
def policy(filled):
    return filled(lambda key: AttentionPolicy(Gravimetry(), width=8, heads=2, key=key))


@pytest.fixture(scope="module")
def history():
    rng = np.random.default_rng(0)
    return 40 * rng.normal(size=(5, 1)), rng.normal(size=(5, 1))


def act(policy, xis, ys):
    memory, _ = jax.lax.scan(
        lambda m, pair: (policy.update(m, *pair), None), policy.init(), (xis, ys)
    )
    return policy.design(memory, jnp.zeros(0))


def encoder_layer(policy, xis, ys):
    """Self-attention among all tokens, post-norm, in full; then the row of the decision token."""
    tokens = jnp.concatenate([policy.decision_token[None], jax.vmap(policy.token)(xis, ys)])
    middle = policy.norm_attention(tokens + policy.attention(tokens))
    output = policy.norm_mlp(middle + policy.mlp(middle))
    return policy.space.constrain(policy.emitter(output[0]))


@pytest.mark.parametrize("steps", [0, 5])
def test_design_is_the_decision_row_of_a_full_encoder_layer(policy, history, steps):
    xis, ys = (data[:steps] for data in history)
    got, expected = jax.jit(lambda xis, ys: [f(policy, xis, ys) for f in (act, encoder_layer)])(
        xis, ys
    )
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_the_order_of_the_history_does_not_matter(policy, history):
    order = np.array([4, 2, 0, 3, 1])
    design = jax.jit(lambda xis, ys: act(policy, xis, ys))
    xis, ys = history
    np.testing.assert_allclose(design(xis, ys), design(xis[order], ys[order]), rtol=1e-10)
    assert (
        np.abs(design(xis, ys) - design(xis, ys[order])).max() > 1e-3
    )  # but which outcome came of which design does


def test_parameter_count_is_the_papers():
    policy = eqx.filter_eval_shape(lambda key: AttentionPolicy(Gravimetry(), key=key), jr.key(0))
    encoders = 2 * (2 * 64 + 65 * 32)
    fusion = 65 * 64 + 65 * 32
    tokens = 2 * 32
    attention = 4 * 32 * 32 + 3 * 32  # no key bias
    norms = 2 * 2 * 32
    feed_forward = 33 * 64 + 65 * 32
    emitter = 33 * 64 + 65
    expected = encoders + fusion + tokens + attention + norms + feed_forward + emitter
    assert sum(leaf.size for leaf in jax.tree.leaves(policy)) == expected == 21_409
    assert policy.attention.heads == 4
