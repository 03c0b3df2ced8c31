"""The table of bounds: every name is an object that refuses what it is not for, and counts what it
costs.
"""

import json
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest

from bounds.test_importance_bounds import random_run  # noqa: F401
from scorebed.bounds import BOUNDS, Tight, make_bound, register_bound, tight_bounds, usual_bound
from scorebed.bounds.base import Bound, Bounds
from scorebed.bounds.contrastive import Contrastive, eig_bounds
from scorebed.bounds.design_cost import expected_cost, net_gain
from scorebed.bounds.gain import Gain
from scorebed.bounds.importance import Importance, LaplaceImportance, importance_bounds
from scorebed.bounds.posterior import PosteriorBound
from scorebed.bounds.smc import SMC
from scorebed.cli._app import run as main
from scorebed.densities.mixture_posterior import MixturePosterior
from scorebed.errors import InvalidValueError, NoDensityError, UnknownNameError
from scorebed.inference.laplace import laplace_posterior
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.samplers.paper import reference_sampler
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import IID, Implicit
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity, Real

TASK = LinearGaussian()
MANY = LocationFinding(sources=5, horizon=2)
DESIGN_NLE = 7


class Thoughtful(eqx.Module):
    """Evaluates the model for its designs, or says so."""

    @property
    def design_nle(self):
        return DESIGN_NLE


class ThoughtfulStatic(Thoughtful, Static):
    """Static designs that have a price."""


class ThoughtfulRandom(Thoughtful, RandomDesigns):
    """Random designs that have a price."""


POLICY = ThoughtfulStatic.from_designs(jnp.asarray([[1.0], [0.5], [-1.0]]), TASK.designs)


def tiny_posterior(task, *, key):
    standardise = Standardiser(*(jnp.ones(1) for _ in range(5)))
    sizes = {"width": 4, "blocks": 0, "heads": 1, "features": 2, "hidden": (4,), "components": 1}
    return MixturePosterior(task, standardise, **sizes, key=key)


# Each with a task that it compiles quickly for.
CASES = [
    (Contrastive(), TASK, POLICY),
    (LaplaceImportance(), TASK, POLICY),
    (SMC(levels=2, moves=1), MANY, ThoughtfulRandom(reference_sampler(MANY)[0])),
    (PosteriorBound(steps=2, batch=4, make=tiny_posterior), TASK, POLICY),
]


class Silent(IID, Implicit):
    """A model that can only be simulated."""

    horizon: int = eqx.field(static=True, default=2)
    prior: eqx.Module = standard_normal((Quantity("a"),))
    designs: Real = eqx.field(static=True, default=Real((Quantity("x"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("y"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def outcome(self, theta, state, xi, noise):
        del state
        return theta * xi + noise


class Half(LinearGaussian):
    """The first parameter is of interest, the others are a nuisance."""

    @property
    def interest(self):
        return (self.prior.quantities[0].name,)


@pytest.mark.parametrize(
    ("bound", "task", "policy"), CASES, ids=[bound.name for bound, *_ in CASES]
)
def test_every_bound_takes_its_sizes_and_says_beforehand_what_it_costs(bound, task, policy):
    bound.supports(task)
    found = bound(task, policy, outer=4, inner=8, key=jr.key(0))
    assert found.outer == 4
    assert math.isfinite(found.lower)
    assert found.nle == bound.nle_with(DESIGN_NLE, task, 4, 8)
    assert found.nle == bound.nle(task, 4, 8) + bound.experiments(4) * DESIGN_NLE


def test_an_estimate_to_choose_by_counts_the_designs_of_its_policy():
    gain = Gain(Contrastive(), TASK, outer=4, inner=8, key=jr.key(0))
    assert gain.nle(DESIGN_NLE) == gain.nle(0) + 4 * DESIGN_NLE == 4 * (8 + 1) * 3 + 4 * DESIGN_NLE


def test_an_object_is_its_function():
    found = Contrastive(inner=9)(TASK, POLICY, outer=4, key=jr.key(0))
    assert found.inner == 9
    assert found.lower == eig_bounds(TASK, POLICY, outer=4, inner=9, key=jr.key(0)).lower
    laplace = Importance().monitor(TASK, POLICY, outer=4, inner=9, key=jr.key(0))
    sizes = {"outer": 4, "inner": 9, "propose": laplace_posterior}
    assert laplace.lower == importance_bounds(TASK, POLICY, **sizes, key=jr.key(0)).lower


def test_names_are_those_of_the_objects():
    assert all(bound.name == name for name, bound in BOUNDS.items())
    with pytest.raises(UnknownNameError, match="did you mean 'importance'"):
        make_bound("importanse")


def test_the_tight_bound_follows_from_the_task():
    assert isinstance(Tight().for_task(TASK), Importance)
    assert isinstance(Tight().for_task(MANY), SMC)
    half = Half(mean=(0.0, 0.0), covariance=((1.0, 0.0), (0.0, 1.0)), bound=1.0)
    assert isinstance(Tight().for_task(half), Contrastive)
    assert Silent().tight_bound is None
    with pytest.raises(NoDensityError, match="posterior bound"):
        tight_bounds(Silent(), POLICY, key=jr.key(0))
    assert isinstance(usual_bound(TASK), Contrastive)
    assert isinstance(usual_bound(Silent()), PosteriorBound)


@pytest.mark.parametrize(
    ("bound", "task", "error"),
    [
        (Contrastive(), Silent(), NoDensityError),
        (Importance(), Silent(), NoDensityError),
        (Importance(), MANY, InvalidValueError),
        (LaplaceImportance(), MANY, InvalidValueError),
        (SMC(), Silent(), NoDensityError),
        (Tight(), Silent(), NoDensityError),
    ],
    ids=lambda part: getattr(part, "name", type(part).__name__),
)
def test_what_a_bound_is_not_for_is_refused(bound, task, error):
    with pytest.raises(error, match="Fix: "):
        bound.supports(task)


def test_what_designs_cost_is_taken_off_where_policies_are_compared():
    class Priced(LinearGaussian):
        cost = DesignCost(Quantity("dose"), lambda xi: xi[0] ** 2, 0.25)

    task, sizes = Priced(), {"outer": 4, "inner": 9, "key": jr.key(0)}
    free = net_gain(Contrastive(), TASK, POLICY, **sizes)
    assert expected_cost(task, POLICY, outer=4, key=jr.key(0)).nats == pytest.approx(0.5625)
    assert net_gain(Contrastive(), task, POLICY, **sizes) == pytest.approx(free - 0.5625)


def test_a_bound_of_a_user_is_reached_by_its_name(random_run, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setitem(BOUNDS, "my-guess", None)  # taken out again at the end

    class Guess(Bound):
        name = "my-guess"

        def __call__(self, task, policy, *, outer=None, inner=None, on_group=None, key):
            del task, policy, inner, on_group, key
            return Bounds(1.0, 0.1, 2.0, 0.1, outer, 0, math.inf, 0.0, 7)

    register_bound("my-guess")(Guess)
    asked = ["evaluate", str(random_run), "--bound", "my-guess", "--outer", "5", "--json"]
    assert main(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    found = {name: answer[name] for name in ("bound", "lower", "upper", "outer", "nle_evaluation")}
    assert found == {
        "bound": "my-guess",
        "lower": 1.0,
        "upper": 2.0,
        "outer": 5,
        "nle_evaluation": 7,
    }
    for name, made in (("smc", Guess), ("My Guess", Guess), ("mine", lambda: None)):
        with pytest.raises(InvalidValueError):
            register_bound(name)(made)


def test_evaluate_says_which_bound_was_tight(random_run, capsys, monkeypatch):  # noqa: F811
    seen = {}

    def bounds(task, policy, *, outer, inner, on_group, key):
        del task, policy, on_group, key
        seen.update(outer=outer, inner=inner)
        return Bounds(1.0, 0.1, 2.0, 0.1, outer, inner, 9.0, 0.0, 7)

    monkeypatch.setattr("scorebed.bounds.importance.importance_bounds", bounds)
    assert main(["evaluate", str(random_run), "--bound", "tight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"] == "importance"
    assert seen == {"outer": 256, "inner": 4096}
    assert main(["evaluate", str(random_run), "--bound", "tight", "--levels", "4"]) == 2
    assert "expected --bound smc" in capsys.readouterr().err
