"""What others may ask of a policy: traits, the same with a constraint around it as without."""

import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from scorebed.baselines.myopic import Myopic
from scorebed.errors import InvalidValueError
from scorebed.policies import POLICIES, make_policy
from scorebed.policies.constrained import obedient
from scorebed.policies.gru import GRUPolicy
from scorebed.tasks import make_task
from scorebed.tasks.declare import steps_at_most
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.policy import faster_noise


class Slow(LinearGaussian):
    """Designs may change by at most one from step to step."""

    constraint = steps_at_most(1.0)


FREE, TIED = make_task("linear-gaussian"), Slow()
T = FREE.horizon
NAMES = [*POLICIES, "myopic"]


def shape(name, task):
    """The policy without its numbers: traits need none."""
    if name == "myopic":
        return eqx.filter_eval_shape(lambda key: Myopic(task, particles=2, key=key), jr.key(0))
    return eqx.filter_eval_shape(lambda key: make_policy(name, task, key=key), jr.key(0))


#           adaptive  trainable  obeys    max_steps  grows
TRAITS = {
    "dad": (True, True, False, None, True),
    "gru": (True, True, False, None, True),
    "attention": (True, True, False, None, True),
    "belief": (True, True, False, None, True),
    "modes": (True, True, False, T, False),
    "lookahead": (True, False, False, T, False),
    "plan": (True, True, False, T, True),
    "receding-horizon": (True, False, False, T, False),
    "static": (False, True, False, T, True),
    "random": (False, False, True, None, True),
    "myopic": (True, False, True, T, False),
}


def extend(policy, horizon):
    return eqx.filter_eval_shape(lambda p, key: p.extended(horizon, key=key), policy, jr.key(0))


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_has_the_traits_of_its_kind(name):
    adaptive, trainable, obeys, max_steps, grows = TRAITS[name]
    policy = shape(name, FREE)
    assert (policy.adaptive, policy.trainable) == (adaptive, trainable)
    assert (policy.obeys_constraint, policy.max_steps) == (obeys, max_steps)
    assert policy.unwrapped is policy
    assert policy.noise_leaves == (("log_std",) if name == "gru" else ())
    assert extend(policy, T - 1).max_steps in (max_steps, T - 1)
    if grows:
        assert extend(policy, T + 2).max_steps in (None, T + 2)
    else:
        with pytest.raises(InvalidValueError, match=f"the number of steps, got {T + 2}"):
            extend(policy, T + 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_constraint_changes_no_trait_but_the_number_of_steps(name):
    policy = shape(name, TIED)
    adaptive, trainable, obeys, max_steps, _ = TRAITS[name]
    assert (policy.unwrapped is policy) == obeys
    assert policy.obeys_constraint
    assert (policy.adaptive, policy.trainable) == (adaptive, trainable)
    assert obedient(TIED, policy) is policy
    if obeys:
        return
    assert policy.max_steps == T
    assert policy.noise_leaves == policy.unwrapped.noise_leaves
    assert policy.beyond_training == policy.unwrapped.beyond_training
    assert extend(policy, T).unwrapped.max_steps in (max_steps, T)
    with pytest.raises(InvalidValueError, match="ties the designs of so many steps together"):
        extend(policy, T + 1)


def test_every_policy_has_words_for_longer_and_shorter_experiments():
    words = {
        "dad": ("may put off", "adds up"),
        "attention": ("may put off", "averages"),
        "gru": ("may put off", "memory runs on"),
        "belief": ("may put off", "memory runs on"),
        "modes": ("may put off", "memory runs on"),
        "lookahead": ("one step ahead", "one step ahead"),
        "static": ("left out", f"no designs beyond its {T}"),
        "plan": ("left out", f"no designs beyond its {T}"),
        "receding-horizon": ("left out", f"no designs beyond its {T}"),
        "random": ("the first are used", "drawn as the first"),
        "myopic": ("one step ahead", "one step ahead"),
    }
    assert set(words) == set(NAMES)
    for name, (shorter, longer) in words.items():
        policy = shape(name, FREE)
        assert shorter in policy.short_of_training
        assert longer in policy.beyond_training


@pytest.mark.parametrize("name", ["static", "plan", "dad"])
def test_a_table_of_designs_grows_and_keeps_its_rows(name):
    policy = shape(name, FREE)
    if name == "dad":
        assert policy.extended(5, key=jr.key(1)) is policy
        return
    where = operator.attrgetter("us" if name == "static" else "table")
    policy = eqx.tree_at(where, policy, jnp.asarray([[0.1], [0.2], [0.4]]))
    longer = policy.extended(5, key=jr.key(1))
    np.testing.assert_array_equal(where(longer)[:3], where(policy))
    assert len(np.unique(where(longer))) == 5
    np.testing.assert_array_equal(where(longer.extended(3, key=jr.key(1))), where(policy))


@pytest.mark.parametrize("task", [FREE, TIED], ids=["free", "constrained"])
def test_only_the_noise_of_a_policy_takes_larger_steps(task):
    def make(key):
        sizes = {"encoder_hidden": (2,), "encoding": 2, "state": 2, "layers": 1}
        return obedient(task, GRUPolicy(task, emitter_hidden=(2,), **sizes, key=key))

    shapes = eqx.filter_eval_shape(make, jr.key(0))
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape), shapes)
    pair = {"policy": ones, "score": np.ones(3)}
    quicker, _ = faster_noise(20.0).update(pair, optax.EmptyState())
    np.testing.assert_array_equal(quicker["policy"].unwrapped.log_std, [20.0])
    total, before = (sum(leaf.sum() for leaf in jax.tree.leaves(each)) for each in (quicker, pair))
    assert total - before == 19.0
