"""Whether the policy has been here before, and what may come next."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from live_runs import make_run

from scorebed.runs.load import load
from scorebed.scores.exact import ExactScore
from scorebed.session.familiarity import LEAST, DesignPool
from scorebed.session.posterior import QUANTILES
from scorebed.session.session import Session
from scorebed.session.what_if import typical_outcomes
from scorebed.tasks import make_task


@pytest.fixture
def session(run, db):
    with Session.create(run, db=db, experiment="bench", seed=3) as session:
        yield session


def test_a_pool_reaches_as_far_as_its_own_spacing():
    task = make_task("linear-gaussian")  # designs from -2 to 2, normalised to -1 to 1
    even = jnp.linspace(-1.0, 0.0, 101)
    dense = DesignPool(task, jnp.broadcast_to(even[:, None, None], (101, 3, 1)))
    assert dense.holds(0, (-0.5,))
    assert dense.holds(0, (2 * LEAST - 0.01,))
    assert not dense.holds(0, (2 * LEAST + 0.02,))
    sparse = DesignPool(
        task, jnp.broadcast_to(jnp.asarray([-2.0, -1.0, 0.0])[:, None, None], (3, 3, 1))
    )
    assert sparse.holds(1, (1.9,))  # twice the spacing of the pool
    assert sparse.holds(3, (2.0,))  # past the last step nothing is known
    # Steps have pools of their own.
    apart = DesignPool(task, jnp.stack([jnp.full((101, 1), -1.0), jnp.full((101, 1), 1.0)], 1))
    assert apart.holds(0, (-1.0,))
    assert not apart.holds(1, (-1.0,))


def test_designs_of_the_policy_are_familiar_and_others_are_not(session):
    first = session.propose().design[0]
    assert session.warnings() == ()
    away = -1.9 if first > 0 else 1.9
    session.observe(0.5, away)
    (warning,) = session.warnings()
    assert "The policy has not met such a design in training: step 1" in warning
    assert session.summary()["warnings"] == list(session.warnings())
    session.correct(1, 0.5, first + 0.05)  # a setting that is a little off
    session.propose()
    assert session.warnings() == ()


def test_a_limited_design_is_judged_like_any_other(session):
    first = session.propose().design[0]
    session.limit(*((-2.0, -1.9) if first > 0 else (1.9, 2.0)))
    session.propose()
    assert "step 1" in session.warnings()[0]


def test_the_score_has_its_own_reach(run, db):
    scored = dataclasses.replace(run, score=ExactScore(run.task))
    with Session.create(scored, db=db, seed=3) as session:
        session.propose()
        session._familiarity._sampler = DesignPool(run.task, jnp.full((101, 3, 1), 1.0))
        session.observe(0.5, -1.9)
        session.finish()
        assert any(
            "The score was not trained on such a design: step 1." in told
            for told in session.warnings()
        )


def test_designs_that_nothing_trained_have_no_training_to_leave(tmp_path, db):
    untrained = load(make_run(tmp_path / "run", policy="random"))
    with Session.create(untrained, db=db) as session:
        session.propose()
        session.observe(0.5, -1.9)
        assert session.warnings() == ()


def test_the_outlook_comes_true(session):
    session.propose()
    before = session.state.sequence
    outlook = session.outlook()
    assert [each.level for each in outlook] == list(QUANTILES)
    assert [each.y for each in outlook] == sorted(each.y for each in outlook)
    assert session.state.sequence == before
    assert outlook[1].y[0] == pytest.approx(session.predictive()[0].quantiles[1])
    session.observe(outlook[1].y)
    assert session.propose().design == outlook[1].design


def test_several_outcomes_are_ordered_along_their_largest_spread():
    random = np.random.default_rng(0)
    along = random.standard_normal(500)
    draws = np.stack(
        [along + 0.1 * random.standard_normal(500), 1e-3 * along, random.standard_normal(500)], 1
    )
    chosen = typical_outcomes(draws, QUANTILES)
    assert all((draws == each).all(1).any() for each in chosen)  # draws as they are, not mixtures
    assert [y[0] for y in chosen] == sorted(y[0] for y in chosen)
    assert abs(chosen[2][0]) < 0.4
    assert chosen[4][0] > 1.2
