"""What designs cost is taken off every estimate, reported beside every bound, and part of no
score.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.bounds.design_cost import expected_cost
from scorebed.check import check_task
from scorebed.errors import InvalidValueError
from scorebed.estimators.mlmc import mlmc_batch
from scorebed.estimators.pce import nmc, pce
from scorebed.estimators.score import adaptive, static
from scorebed.policies.static import Static
from scorebed.presets.reader import preset_values
from scorebed.rollout import draw_noise
from scorebed.runs.artifacts import fingerprint
from scorebed.scores.exact import ExactScore
from scorebed.tasks.declare import priced
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian


class Dear(LinearGaussian):
    """The scalar oracle, whose designs cost their square."""

    cost = priced("energy [J]", lambda xi: xi[0] ** 2, nats=0.25)


class Free(LinearGaussian):
    """The same for nothing."""


XIS = jnp.asarray([[0.5], [-1.0], [0.8]])
SPENT = 0.25 + 1.0 + 0.64


def estimates(task, us, *, more=False):
    """Every estimator of one trajectory, at static designs."""
    policy = Static(us, task.designs)
    theta, noise = task.prior.sample(key=jr.key(0)), draw_noise(task, policy, key=jr.key(1))
    score = ExactScore(task)
    batch = jax.tree.map(lambda x: x[None], (theta, noise))
    return jnp.stack(
        [
            adaptive(task, score, policy, theta, noise),
            static(task, score, policy, theta, noise),
            pce(task, policy, theta, noise, inner=4, key=jr.key(2)),
            nmc(task, policy, theta, noise, inner=4, key=jr.key(2)),
            *(
                [mlmc_batch(task, policy, *batch, base=1, cap=1, tau=1.1, key=jr.key(2))[0]]
                if more
                else []
            ),
        ]
    )


def test_every_estimate_pays():
    """EIG − price Σ cost."""
    us = Dear().designs.unconstrain(XIS)
    dear, free = (
        jax.jit(lambda us, task=task: estimates(task, us))(us)
        for task in (Dear(horizon=3), Free(horizon=3))
    )
    np.testing.assert_allclose(free - dear, np.full(4, 0.25 * SPENT), rtol=1e-4)


@pytest.mark.slow
def test_every_gradient_pays():
    """d/du = −0.25 · 2ξ · dξ/du."""
    tasks = (Dear(horizon=3), Free(horizon=3))
    us = tasks[0].designs.unconstrain(XIS)
    dear, free = (
        jax.jit(jax.jacrev(lambda us, task=task: estimates(task, us, more=True)))(us)
        for task in tasks
    )
    slope = 0.25 * 2 * XIS * jnp.exp(tasks[0].designs.log_jacobian(us))
    np.testing.assert_allclose(free - dear, np.broadcast_to(slope, (5, 3, 1)), rtol=1e-3, atol=1e-5)


def test_the_expected_cost_is_that_of_the_designs():
    task = Dear(horizon=3)
    policy = Static.from_designs(XIS, task.designs)
    found = expected_cost(task, policy, outer=4, key=jr.key(0))
    np.testing.assert_allclose([found.mean, found.nats], [SPENT, 0.25 * SPENT], rtol=1e-5)
    assert found.se < 1e-6
    assert expected_cost(Free(horizon=3), policy, outer=4, key=jr.key(0)).mean == 0.0


def test_a_price_changes_no_score_and_no_gradient_is_shortened():
    dearer = type("Dear", (Dear,), {"cost": priced("energy [J]", lambda xi: xi[0] ** 2, nats=1.0)})
    assert fingerprint(Dear()) == fingerprint(dearer())
    assert (
        preset_values("quick", "x", Dear(), method="score")["policy_training"]["trajectory_clip"]
        == 0.0
    )
    assert (
        preset_values("quick", "x", Free(), method="score")["policy_training"]["trajectory_clip"]
        > 0.0
    )


BAD = {
    "no function": (lambda: priced("energy", 3.0, nats=1.0), "expected a function of xi"),
    "no price": (lambda: priced("energy", abs, nats=0.0), "a positive number of nats"),
    "a vector": (
        lambda: priced("energy", lambda xi: xi, nats=1.0).of(jnp.ones(2)),
        "expected a single number",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_wrong_cost_says_what_is_wrong(fault):
    declare, words = BAD[fault]
    with pytest.raises(InvalidValueError, match=words):
        declare()


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (3.0, "`cost` is a float"),
        (priced("energy", lambda xi: xi, nats=1.0), "the cost 'energy' of a design, got an array"),
        (priced("energy", lambda xi: xi[0] + [], nats=1.0), "`cost` fails"),
    ],
)
def test_the_check_tells_a_wrong_cost(cost, words):
    found = check_task(type("Wrong", (LinearGaussian,), {"cost": cost})(), key=jr.key(0))
    assert any(words in finding.sentence for finding in found), found
