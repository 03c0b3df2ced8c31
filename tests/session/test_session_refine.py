"""Refine now: the remaining steps are an experiment of its own, and a policy that was refined on
them is better or not kept.
"""

import dataclasses
import functools
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from crashes import Crash, crash_at
from live_runs import make_run
from test_session_posterior import Drifting

from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.estimators.score import adaptive
from scorebed.policies.dad import DAD
from scorebed.rollout import draw_noise, log_likelihood, rollout
from scorebed.runs.load import load
from scorebed.scores.exact import ExactScore
from scorebed.session import refine
from scorebed.session.events import Limits, Remaining
from scorebed.session.refine import RefinedPolicy, refine_policy
from scorebed.session.remaining import (
    ContinuingPolicy,
    FutureScore,
    LimitArrays,
    PosteriorParticles,
)
from scorebed.session.session import Session
from scorebed.session.what_if import plus
from scorebed.tasks.continued import continued
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.priors import gaussian

Z_ALARM = 4.892  # a false alarm in a million
TASK = LinearGaussian()
YS, XIS = jnp.asarray([[0.8]]), jnp.asarray([[1.5]])
V = 1 / (1 + 1.5**2)
MEAN = V * 1.5 * 0.8


@pytest.fixture(scope="module", autouse=True)
def small():
    """Sizes for a machine that has other things to do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refine, "OUTER", 256)
        patch.setattr(refine, "EVALUATION_INNER", 255)
        patch.setattr(refine, "INNER", 31)
        yield


@pytest.fixture(scope="module")
def timid():
    """A policy that measures close to zero, where nothing is learned."""
    made = eqx.filter_jit(lambda key: DAD(TASK, hidden=(4,), encoding=2, key=key))(jr.key(0))
    return eqx.tree_at(lambda p: p.emitter.bias, made, jnp.asarray([0.1]))


@pytest.fixture(scope="module")
def rest():
    """Two steps after one measurement, with the exact posterior in place of particles."""
    return continued(
        TASK, gaussian(TASK.prior.quantities, (MEAN,), ((V,),)), XIS.tolist(), YS.tolist()
    )


def continuing(policy, limits=None):
    return ContinuingPolicy(policy, YS, XIS, LimitArrays.of(limits, 1))


def ticking(step=1.0):
    """A clock that moves whenever somebody looks at it, so that the number of steps is known."""
    now = 0.0

    def clock():
        nonlocal now
        now += step
        return now

    return clock


@eqx.filter_jit
def _designs(rest, policy, key):
    def one(key):
        noise = draw_noise(rest, policy, key=key)
        return rollout(rest, policy, rest.prior.sample(key=key), noise).xis

    return jax.vmap(one)(jr.split(key, 512))


def truth(rest, policy):
    """The EIG of the remaining steps in closed form, on many rollouts: ½ log(1 + V Σ ξ²)."""
    xis = np.asarray(_designs(rest, policy, jr.key(9)), np.float64)
    return float(0.5 * np.log1p(V * (xis**2).sum((1, 2))).mean())


# ---- the remaining steps as a task


@pytest.mark.parametrize(
    "task", [LinearGaussian(), LinearMarkov(), Drifting()], ids=lambda task: type(task).__name__
)
def test_the_likelihood_of_the_rest_is_that_of_the_whole_over_that_of_the_past(task):
    """However many steps are to come, and for one history as for another of its length, without
    compiling again.
    """
    traced = 0

    @eqx.filter_jit
    def three(rest, theta, ys, xis):
        nonlocal traced
        traced += 1
        t = len(ys) - rest.horizon
        past = log_likelihood(task, theta, ys[:t], xis[:t]) if t else jnp.zeros(())
        return (
            log_likelihood(rest, theta, ys[t:], xis[t:]),
            log_likelihood(task, theta, ys, xis),
            past,
        )

    theta, xis = jnp.asarray([0.7]), jnp.asarray([[1.0], [-0.5], [1.5]])
    for ys in (jnp.asarray([[0.5], [1.5], [-2.0]]), jnp.asarray([[0.1], [-1.2], [0.4]])):
        prior = PosteriorParticles(theta=theta[None], quantities=task.prior.quantities)
        rest = continued(task, prior, xis[:2].tolist(), ys[:2].tolist(), steps=1)
        of_rest, whole, past = three(rest, theta, ys, xis)
        assert float(of_rest) == pytest.approx(float(whole) - float(past), rel=1e-5)
    assert traced == 1
    # Nothing is over, and more is to come than was planned.
    longer = continued(task, task.prior, [], [], steps=5)
    of_longer, whole, _ = three(longer, theta, jnp.tile(ys, (2, 1))[:5], jnp.tile(xis, (2, 1))[:5])
    assert longer.horizon == 5
    assert float(of_longer) == pytest.approx(float(whole), rel=1e-6)


def test_the_score_at_the_steps_to_come_gives_the_gradient_of_what_remains(rest, timid):
    """E[∇ surrogate] against ∇ of the closed form in the emitter's bias, on the same trajectories
    of an adaptive policy.
    """
    adaptive_policy = eqx.tree_at(lambda p: p.emitter.weight, timid, timid.emitter.weight * 20)

    @eqx.filter_jit
    def slopes(score, key):
        def one(key):
            theta = rest.prior.sample(key=jr.fold_in(key, 0))

            def along(estimate):
                def value(bias):
                    policy = continuing(
                        eqx.tree_at(lambda p: p.emitter.bias, adaptive_policy, bias)
                    )
                    return estimate(policy, draw_noise(rest, policy, key=jr.fold_in(key, 1)))

                return jax.grad(value)(jnp.asarray([0.5]))[0]

            surrogate = along(lambda policy, noise: adaptive(rest, score, policy, theta, noise))
            exact = along(
                lambda policy, noise: (
                    0.5 * jnp.log1p(V * (rollout(rest, policy, theta, noise).xis ** 2).sum())
                )
            )
            return surrogate, exact

        return jax.vmap(one)(jr.split(key, 4096))

    # A measurement at zero says nothing, so the second score knows nothing of the past.
    right, forgetful = (FutureScore(ExactScore(TASK), YS, past) for past in (XIS, 0 * XIS))
    surrogate, exact = (np.asarray(each, np.float64) for each in slopes(right, jr.key(1)))
    error = (surrogate - exact).std(ddof=1) / math.sqrt(len(exact))
    assert abs((surrogate - exact).mean()) <= Z_ALARM * error
    # A score that forgets the past, on the same draws, is seen: this test would catch it.
    wrong = np.asarray(slopes(forgetful, jr.key(1))[0], np.float64)
    assert abs((wrong - exact).mean()) > 2 * Z_ALARM * error


def test_at_a_limit_the_gradient_still_says_where_to_go(timid):
    policy = eqx.tree_at(
        lambda p: p.emitter.bias, timid, jnp.asarray([1.0])
    )  # asks for 2 tanh(1) = 1.52
    limited = continuing(policy, Limits((-0.5,), (0.5,)))

    def design(bias):
        return eqx.tree_at(lambda c: c.policy.emitter.bias, limited, bias).design(
            policy.init(), jnp.zeros(0)
        )[0]

    value, slope = eqx.filter_jit(jax.value_and_grad(design))(jnp.asarray([1.0]))
    assert value == 0.5
    assert slope[0] > 0.1


# ---- refining


@pytest.mark.slow
@pytest.mark.parametrize("by", ["pce", pytest.param("score", marks=pytest.mark.slow)])
def test_a_bad_policy_becomes_better_by_the_closed_form_and_the_estimates_are_true(rest, timid, by):
    score = FutureScore(ExactScore(TASK), YS, XIS) if by == "score" else None
    policy = continuing(timid)
    outcome = refine_policy(
        rest, policy, score, rate=0.02, seconds=20.0, clock=ticking(), key=jr.key(2)
    )
    assert (outcome.by, outcome.steps) == (by, outcome.steps // 10 * 10)
    assert 60 <= outcome.steps <= 200
    after = continuing(outcome.policy)
    assert outcome.better
    assert truth(rest, after) > truth(rest, policy) + 0.3
    # The lower bound is off by (e^{2 EIG} − 1)/2M at most, with 255 contrastive draws.
    for told, of in ((outcome.before, policy), (outcome.after, after)):
        exact = truth(rest, of)
        assert told.lower - Z_ALARM * told.se <= exact <= told.upper + Z_ALARM * told.se
        assert abs(told.lower - exact) <= Z_ALARM * told.se + math.expm1(2 * exact) / 510


@pytest.mark.slow
def test_a_policy_that_became_worse_is_not_kept(rest, timid):
    bold = eqx.tree_at(lambda p: p.emitter.bias, timid, jnp.asarray([0.5]))
    outcome = refine_policy(
        rest, continuing(bold), None, rate=-0.02, seconds=26.0, clock=ticking(), key=jr.key(2)
    )
    assert truth(rest, continuing(outcome.policy)) < truth(rest, continuing(bold))
    assert outcome.gain < 0
    assert not outcome.better


def test_without_time_nothing_is_trained(rest, timid):
    policy = continuing(timid)
    outcome = refine_policy(
        rest, policy, None, rate=0.02, seconds=3.0, clock=ticking(), key=jr.key(2)
    )
    assert (outcome.steps, outcome.gain, outcome.better) == (0, 0.0, False)
    assert outcome.policy is policy.policy


# ---- in an experiment


@pytest.fixture
def instant(monkeypatch):
    """`refine` without its training: what it would find is given, as a change of the policy's
    arrays.
    """

    def become(change, *, gain=0.3, meanwhile=lambda: None):
        def found(rest, policy, score, *, rate, seconds, key):
            del rest, rate, seconds, key
            meanwhile()
            new = change(policy.policy)
            by = "pce" if score is None else "score"
            return RefinedPolicy(
                new,
                by,
                20,
                1.5,
                Remaining(0.2, 0.25, 0.01),
                Remaining(0.2 + gain, 0.6, 0.01),
                gain,
                0.01,
            )

        monkeypatch.setattr(refine, "refine_policy", found)

    return become


def bolder(policy):
    return eqx.tree_at(lambda p: p.emitter.bias, policy, policy.emitter.bias + 0.7)


@pytest.fixture
def session(run, db):
    with Session.create(run, db=db, experiment="bench", seed=3) as session:
        session.propose()
        session.observe(0.5)
        yield session


def test_a_refined_policy_proposes_and_is_found_again_and_undone(folder, db, session, instant):
    before = session.propose()
    instant(bolder)
    refined = session.refine(5)
    assert refined.kept
    assert "0.200 nats before, 0.500 after, +0.300" in refined.sentence
    after = session.propose()
    assert after.design != before.design
    assert [event.kind for event in session.history()][-3:] == ["proposed", "refined", "proposed"]
    # Whoever opens it anew, from the files alone, goes on with the same policy.
    with Session.open(load(folder), db=db, experiment="bench") as again:
        assert again.propose() == after
        assert again.foresee(0.3) == session.foresee(0.3)
        assert "Refined at step 2 by PCE" in again.circumstances()[0]
    by_refined = session.expected
    assert by_refined == from_here(session)
    session.observe(0.4)
    session.propose()
    assert session.expected == from_here(session) != by_refined
    assert session.summary()["refinement"]["by"] == "pce"
    session.undo()
    assert session.propose().design == after.design
    assert session.undo().kind == "refined"
    assert session.propose().design == before.design
    assert session.expected == from_here(session) != by_refined


def from_here(session):
    """What is known, and what remains by particles."""
    return plus(session.information()[-1], session.ahead().remaining, errors=2.0)


def test_expectations_follow_the_data_and_the_circumstances(session, instant):
    instant(bolder)
    session.refine(5)
    seen = [session.expected]
    session.limit(-0.5, 0.5)
    seen.append(session.expected)
    assert seen[1].upper < seen[0].upper  # small covariates say little about their coefficient
    assert "the policy was refined" in session.circumstances()[-1]
    session.undo()
    assert session.expected == seen[0]
    session.correct(1, 0.6)
    assert session.state.refinement.outdated
    assert session.expected == from_here(session) != seen[0]


def test_before_anything_is_measured_the_bounds_of_refining_count(session, instant):
    session.undo()
    instant(bolder)
    session.refine(5)
    assert (session.expected.lower, session.expected.upper) == (0.5, 0.6)
    session.limit(-0.5, 0.5)
    assert session.expected is None


def test_a_policy_that_is_no_better_is_not_stored(session, instant):
    shown = session.propose()
    instant(bolder, gain=-0.1)
    refined = session.refine(5)
    assert not refined.kept
    assert refined.sentence.startswith("Left as it was")
    assert session.propose() == shown
    assert "refined" not in [event.kind for event in session.history()]


def test_what_is_entered_meanwhile_is_not_refined_over(run, db, session, instant):
    session.propose()
    other = Session.open(run, db=db, experiment="bench")
    instant(bolder, meanwhile=lambda: other.observe(1.0, 0.5))
    with pytest.raises(ConflictError, match="something that was entered while it was trained"):
        session.refine(5)
    assert [event.kind for event in session.history()][-1] == "observed"
    instant(bolder, meanwhile=lambda: other.note("a note is no reason"))
    assert session.refine(5).kept
    other.close()


@pytest.mark.parametrize("where", ["before", "inside", "after"])
def test_a_crash_while_a_policy_is_stored_leaves_it_whole_or_not_at_all(
    run, db, session, instant, monkeypatch, where
):
    before = session.propose()
    instant(bolder)
    crash_at(monkeypatch, where)
    with pytest.raises(Crash):
        session.refine(5)
    monkeypatch.undo()
    with Session.open(run, db=db, experiment="bench") as resumed:
        kinds = [event.kind for event in resumed.history()]
        assert kinds == ["proposed", "observed", "proposed"] + (
            ["refined"] if where == "after" else []
        )
        (policies,) = resumed._store._connection.execute("SELECT count(*) FROM policies").fetchone()
        assert policies == (where == "after")
        assert (resumed.propose() == before) == (where != "after")


def test_a_policy_that_is_not_what_was_stored_is_refused_and_can_be_undone(
    run, db, session, instant
):
    before = session.propose()
    instant(bolder)
    session.refine(5)
    session._store._connection.execute("DROP TRIGGER policies_stay")
    session._store._connection.execute("UPDATE policies SET data = x'00'")
    with Session.open(run, db=db, experiment="bench") as again:
        with pytest.raises(InvalidValueError, match="other bytes than were stored"):
            again.propose()
        again.undo()
        assert again.propose().design == before.design


def test_refined_policies_are_exported_and_imported(run, tmp_path, session, instant):
    instant(bolder)
    session.refine(5)
    text = session.export_json()
    with Session.import_json(run, text, db=tmp_path / "second.sqlite") as copy:
        assert copy.export_json() == text
        assert copy.propose().design == session.propose().design
        assert copy.undo().kind == "refined"
    document = json.loads(text)
    (sha256,) = document["policies"]
    broken = [
        {"policies": {}},
        {"policies": {sha256: "AAAA"}},
        {"policies": {sha256: "no base64"}},
        {"policies": []},
    ]
    for number, change in enumerate(broken):
        with pytest.raises(InvalidValueError, match="an exported experiment, got"):
            Session.import_json(
                run,
                json.dumps(document | change),
                db=tmp_path / "third.sqlite",
                experiment=f"{number}",
            )


def test_a_static_policy_is_given_the_designs_that_it_lacks(tmp_path, db, instant):
    static_run = load(make_run(tmp_path / "run", policy="static"))
    instant(
        lambda policy: policy, gain=-0.5
    )  # no better than random designs: but there are no others
    with Session.create(static_run, db=db, seed=3, steps=5) as session:
        for _ in range(3):
            session.propose()
            session.observe(0.5)
        with pytest.raises(ScorebedError, match="Fix: refine now"):
            session.propose()
        refined = session.refine(5)
        assert (refined.kept, refined.before) == (True, None)
        designs = [session.propose().design]
        session.observe(0.5)
        with Session.open(static_run, db=db) as again:
            designs.append(again.propose().design)
            again.observe(0.5)
            assert again.state.complete
        assert designs[0] != designs[1]


def test_the_score_is_used_where_it_is_exact(run, db, instant):
    scored = dataclasses.replace(run, score=ExactScore(run.task))
    instant(bolder)
    with Session.create(scored, db=db, seed=3) as session:
        session.propose()
        session.observe(0.5)
        assert session.refine(5).by == "score"
        session.limit(-0.5, 0.5)  # the score knows all designs
        assert session.refine(5).by == "score"
        assert session.refine(5, by="pce").by == "pce"
        session.set_horizon(4)
        assert session.refine(5).by == "pce"
        with pytest.raises(
            InvalidValueError, match="an experiment of 4 measurements, expected a score, and the 3"
        ):
            session.refine(5, by="score")
        session.set_horizon(3)
        session.skip()
        assert session.refine(5).by == "pce"  # two measurements in all
        for bad in (
            {"by": "magic"},
            {"seconds": 0},
            {"seconds": math.nan},
            {"seconds": "5"},
            {"seconds": 1e9},
        ):
            with pytest.raises(InvalidValueError, match=r"the (way|time) to refine, got"):
                session.refine(**bad)


def test_designs_that_nothing_trained_cannot_be_refined(tmp_path, db):
    untrained = make_run(tmp_path / "run", policy="random")
    refused = pytest.raises(InvalidValueError, match="designs that no training made")
    with Session.create(untrained, db=db) as session, refused:
        session.refine(5)


@pytest.mark.slow
def test_refining_an_experiment_from_end_to_end(run, db, timid, monkeypatch):
    """All of it: particles of the posterior, training, decision, event, forecast."""
    monkeypatch.setattr(refine, "refine_policy", functools.partial(refine_policy, clock=ticking()))
    monkeypatch.setattr(refine, "LEAST_RATE", 0.03)
    shy = dataclasses.replace(run, policy=timid)
    with Session.create(shy, db=db, seed=3) as session:
        session.propose()
        session.observe(0.8, 1.5)
        before = session.propose()
        refined = session.refine(26)
        assert refined.kept
        assert refined.after.lower > refined.before.lower + 0.2
        after = session.propose()
        assert abs(after.design[0]) > abs(before.design[0])
        exact = session.forecast()
        assert abs(exact.lower - refined.after.lower) < 0.1
        with Session.open(shy, db=db) as again:
            assert again.propose() == after


def test_there_is_no_upper_bound_where_particles_cannot_tell():
    ceiling = math.log(refine.EVALUATION_INNER + 1)
    free, pressed = np.full(100, 1.0), np.full(100, 1.0)
    pressed[:10] = ceiling - 0.1
    assert refine._remaining(refine._Values(free, free + 0.1, free)).upper == pytest.approx(1.1)
    assert refine._remaining(refine._Values(pressed, pressed + 0.1, pressed)).upper is None
    assert refine._remaining(refine._Values(free, np.full(100, np.inf), free)).upper is None
