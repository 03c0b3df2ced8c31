"""Deep adaptive design: its symmetry, its size and its first designs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from scorebed.policies.dad import DAD
from scorebed.tasks.library.location import LocationFinding


def test_the_order_of_the_history_does_not_matter(filled):
    task = LocationFinding()
    policy = filled(lambda key: DAD(task, hidden=(6,), encoding=4, key=key))
    rng = np.random.default_rng(0)
    xis, ys = rng.normal(size=(5, 2)), rng.normal(size=(5, 1))

    @jax.jit
    def design(xis, ys):
        memory, _ = jax.lax.scan(
            lambda m, pair: (policy.update(m, *pair), None), policy.init(), (xis, ys)
        )
        return policy.design(memory, jnp.zeros(0))

    order = np.array([4, 2, 0, 3, 1])
    np.testing.assert_allclose(design(xis, ys), design(xis[order], ys[order]), rtol=1e-10)
    assert (
        np.abs(design(xis, ys) - design(xis, ys[order])).max() > 1e-3
    )  # but which outcome came of which design does


def test_parameter_count_is_the_papers():
    """(3 → 256 → 16) and (16 → 2): 4·256 + 257·16 + 17·2."""
    policy = eqx.filter_eval_shape(lambda key: DAD(LocationFinding(), key=key), jr.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(policy)) == 1024 + 4112 + 34


def test_a_fresh_policy_starts_near_the_origin():
    """Ten outcomes move the design by about a quarter. With the default bound 1/√16 it would be
    five times as much.
    """
    policy = DAD(LocationFinding(), key=jr.key(0))
    pairs = np.random.default_rng(0).normal(size=(32, 10, 3))

    @jax.jit
    def designs(pairs):
        last = jax.vmap(lambda pairs: policy.design(policy.encoder(pairs).sum(0), jnp.zeros(0)))(
            pairs
        )
        return policy.design(policy.init(), jnp.zeros(0)), last

    first, last = (np.asarray(xis) for xis in designs(pairs))
    assert 0 < np.abs(first).max() <= 0.25  # the emitter's bias
    assert 0.02 < np.sqrt(np.square(last - first).mean()) < 0.5
