"""The table of scores: every kind is made, counted and refused by its object."""

import dataclasses
import typing

import equinox as eqx
import jax.random as jr
import pytest

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import SCORES, make_score, register_score, score_kind
from scorebed.scores.base import Score, ScoreKind
from scorebed.scores.conditional import ScorePair
from scorebed.scores.laplace import Laplace
from scorebed.scores.particles import LikelihoodParticles, Particles
from scorebed.scores.residual_scale import ResidualScale, SelfWeighingScore
from scorebed.scores.standardise import standardiser
from scorebed.tasks.library.pendulum import Pendulum

TASK = Pendulum(horizon=3)
SIZES = {"particles": 2, "cloud": 4, "width": 8, "blocks": 1, "heads": 2, "iterations": 3}


class About(Pendulum):
    """One parameter of interest; the other is a nuisance."""

    interest = (TASK.prior.quantities[0].name,)


def made(kind: ScoreKind, task=TASK) -> Score:
    """A score without its numbers."""

    def make(key):
        return make_score(kind, task, standardiser(task, paper_sampler(task), key=key), key=key)

    return eqx.filter_eval_shape(make, jr.key(0))


@pytest.mark.parametrize("name", SCORES)
def test_a_kind_counts_what_its_score_counts(name):
    kind = score_kind(name, SIZES)
    kind.supports(TASK)
    assert made(kind).nle == kind.nle(TASK)
    assert kind == score_kind(name, SIZES | {"of another kind": 1})


@pytest.mark.parametrize("name", sorted(set(SCORES) - {"laplace"}))
def test_a_pair_is_counted_as_two(name):
    kind, task = score_kind(name, SIZES), About(horizon=3)
    pair = made(kind, task)
    assert isinstance(pair, ScorePair)
    assert pair.nle == kind.nle(task) == 2 * kind.nle(TASK)


@pytest.mark.parametrize("name", SCORES)
def test_settings_are_plain_values_with_defaults(name):
    hints = typing.get_type_hints(SCORES[name])
    for field in dataclasses.fields(SCORES[name]):
        assert hints[field.name] in (int, float, bool, tuple[int, ...])
        assert isinstance(field.default, int | float | tuple)


def test_only_what_has_parameters_is_trained():
    assert [name for name, kind in SCORES.items() if not kind.trained] == ["laplace"]


def test_smaller_clouds_end_at_two_points():
    clouds, kind = [], Particles(cloud=16)
    while kind is not None:
        clouds.append(kind.cloud)
        kind = kind.smaller()
    assert clouds == [16, 8, 4, 2]
    assert Laplace().smaller() is None


def test_what_a_kind_cannot_serve_is_refused():
    with pytest.raises(InvalidValueError, match="ψ as an input"):
        made(Laplace(), About(horizon=3))
    with pytest.raises(UnknownNameError, match="did you mean 'particles'"):
        score_kind("partikles")


def test_a_score_that_weighs_itself_passes_on_all_but_its_value():
    def make(key):
        standardise = standardiser(TASK, paper_sampler(TASK), key=key)
        score = LikelihoodParticles(TASK, standardise, particles=1, cloud=2, width=4, key=key)
        return SelfWeighingScore(score, ResidualScale(TASK, standardise, width=4, key=key))

    score = eqx.filter_eval_shape(make, jr.key(0))
    assert score.rescales_residuals
    assert not score.kept.rescales_residuals
    assert score.kept is score.score
    assert score.nle == score.score.nle


def test_a_kind_of_a_user_is_reached_by_its_name(monkeypatch):
    monkeypatch.setitem(SCORES, "my-particles", None)  # taken out again at the end

    @register_score("my-particles")
    class Mine(ScoreKind):
        width: int = 4

        def make(self, task, standardise, *, key):
            return LikelihoodParticles(
                task, standardise, particles=1, cloud=2, width=self.width, key=key
            )

        def nle(self, task):
            return 2 * task.horizon

    kind = score_kind("my-particles", SIZES)
    assert isinstance(kind, Mine)
    assert kind.width == 8
    assert made(kind).nle == kind.nle(TASK)
    for name, wrong in (("particles", Mine), ("My", Mine), ("mine", make_score)):
        with pytest.raises(InvalidValueError):
            register_score(name)(wrong)
