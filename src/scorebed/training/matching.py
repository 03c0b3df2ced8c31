"""What stage 1 lowers: a matching loss on experiments with a sampler's designs, and the weights of
its two parts.

    marginal   J = E λ_y ‖s_y − ∇_y log p(y | ξ, θ)‖² + λ_ξ ‖s_ξ − ∇_ξ log p(y | ξ, θ)‖²
    sliced     J = E vᵀ∇S v + ½ (vᵀS)², which needs no likelihood

Both have the marginal score as their minimiser. A kind of matching is an object: what it can be
trained on, its terms, and how its weights are measured."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from scorebed._jit import jit_once
from scorebed._sharding import shard_batch
from scorebed.errors import require
from scorebed.estimators.matching import (
    bias_penalty,
    conditional_score,
    marginal_score_matching,
    rescaled_score_matching,
    sliced_score_matching,
)
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import PILOT, Trajectory, pilot_runs, simulate, simulate_outcomes
from scorebed.samplers.base import DesignSampler, Unconstrained
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task
from scorebed.training.dropped import mean_of_finite
from scorebed.training.fit import Loss, Terms


class Weights(eqx.Module):
    """Fixed weights of the two parts of the loss, per coordinate, and how far residuals are
    relative to the size of the score.
    """

    y: Float[Array, "*dy"]
    xi: Float[Array, "*dx"]
    relative: float = eqx.field(static=True)


def mean_weights(task: Task, lambda_y: float, *, relative: float = 0.0) -> Weights:
    """The paper's: the mean over steps and coordinates of squared residuals, with the weight λ_y on
    those of y,

        λ_y Σ e_y² / (T d_y) + Σ e_u² / (T d_ξ),   e_u = e_ξ · `designs.loss_unit`.

    Designs of an open space count in units of its scale, u = ξ / 40 m for gravimetry, those of a
    box as they are: the paper's λ_y balance the two parts then, and only then."""
    unit = jnp.asarray(task.designs.loss_unit)
    of_y, of_xi = (float(task.horizon * n) for n in (task.outcome_dim, task.designs.dim))
    return Weights(jnp.asarray(lambda_y / of_y), unit**2 / of_xi, relative)


class Matching(eqx.Module):
    """A loss whose minimiser is the marginal score."""

    # Whether it regresses on a target: then there are residuals to weigh, and designs may have
    # been chosen in view of the data.
    has_target: ClassVar[bool]

    def supports(self, task: Task, sampler: DesignSampler) -> None:
        """Refuse a task or designs that it cannot learn from."""
        del task, sampler

    @abc.abstractmethod
    def terms(
        self,
        score: Score,
        task: Task,
        sampler: DesignSampler,
        weights: Weights,
        *,
        batch: int,
        policy: Policy | None,
        key: PRNGKeyArray,
    ) -> Terms:
        """The loss on a batch of experiments, half of them of a policy where one is given."""

    @abc.abstractmethod
    def automatic_weights(
        self, task: Task, sampler: DesignSampler, *, relative: float, key: PRNGKeyArray
    ) -> Weights:
        """Weights that bring both parts to order one, measured by a pilot."""

    def pilot_nle(self, task: Task) -> int:
        """Likelihood evaluations of that pilot; where none are needed, its simulations."""
        return PILOT * task.horizon


class MarginalMatching(Matching):
    """Regression on conditional scores. batch·T NLE a step."""

    has_target: ClassVar[bool] = True

    def supports(self, task: Task, sampler: DesignSampler) -> None:
        del sampler
        require(
            task.has_density,
            f"the score of {type(task).__name__}",
            got="marginal score matching",
            expected="sliced score matching, since the model has no density",
            fix="leave score.loss out, or write `log_prob`.",
        )

    def terms(
        self,
        score: Score,
        task: Task,
        sampler: DesignSampler,
        weights: Weights,
        *,
        batch: int,
        policy: Policy | None,
        key: PRNGKeyArray,
    ) -> Terms:
        sources: list[tuple[Policy, int]] = [
            (RandomDesigns(sampler), batch if policy is None else batch - batch // 2)
        ]
        sources += [] if policy is None else [(policy, batch // 2)]
        parts = [
            jax.vmap(lambda k, source=source: simulate(task, source, key=k))(
                shard_batch(jr.split(named(key, "runs", i), count))
            )
            for i, (source, count) in enumerate(sources)
            if count
        ]
        runs = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
        return matching_terms(score, task, runs, weights)

    def automatic_weights(
        self, task: Task, sampler: DesignSampler, *, relative: float, key: PRNGKeyArray
    ) -> Weights:
        """Over the median squared conditional score of a pilot of 1,024 experiments."""

        def pilot(key: PRNGKeyArray) -> ScoreValue:
            runs = pilot_runs(task, sampler, key=key)
            return jax.vmap(lambda run: conditional_score(task, run))(runs)

        target = jit_once(pilot)(key)
        tiny = jnp.finfo(target.y.dtype).tiny

        def typical(t: Array) -> Array:
            square = jnp.where(jnp.isfinite(t), t, jnp.nan) ** 2
            return jnp.maximum(jnp.nanmedian(square, axis=(0, 1)), tiny)

        size = jax.tree.map(lambda t: typical(t) * task.horizon * t.shape[-1], target)
        return Weights(1 / size.y, 1 / size.xi, relative)


class SlicedMatching(Matching):
    """Sliced score matching, for models without a density, or to spare their likelihoods. No NLE
    but what simulations count.
    """

    has_target: ClassVar[bool] = False

    def supports(self, task: Task, sampler: DesignSampler) -> None:
        require(
            isinstance(sampler, Unconstrained),
            f"the designs of {type(task).__name__}",
            got=type(sampler).__name__,
            expected="designs with a smooth density and no constraint, for sliced score matching",
            fix="leave `constraint` out and use --sampler gaussian, random-scale or ar1, or match "
            "the marginal score by likelihoods.",
        )

    def terms(
        self,
        score: Score,
        task: Task,
        sampler: DesignSampler,
        weights: Weights,
        *,
        batch: int,
        policy: Policy | None,
        key: PRNGKeyArray,
    ) -> Terms:
        """The mean over experiments of the sampler; of `ScorePair` the sum of both."""
        del policy  # `score_loss` has refused one
        self.supports(task, sampler)
        assert isinstance(sampler, Unconstrained)  # for the type checker
        lambda_u = weights.xi / jnp.asarray(task.designs.loss_unit) ** 2

        def one(key: PRNGKeyArray) -> Array:
            us = sampler.sample_unconstrained(key=named(key, "designs"))
            theta = task.prior.sample(key=named(key, "theta"))
            noise = jr.normal(named(key, "noise"), (task.horizon, task.noise_dim))
            ys = simulate_outcomes(task, theta, sampler.space.constrain(us), noise)
            return jnp.stack(
                [
                    sliced_score_matching(
                        each,
                        sampler,
                        ys,
                        us,
                        lambda_y=weights.y,
                        lambda_u=lambda_u,
                        key=named(key, "direction"),
                    )
                    for each in score.parts(theta)
                ]
            ).sum()

        keys = shard_batch(jr.split(named(key, "runs", 0), batch))
        return {"sliced": jax.vmap(one)(keys).mean()}

    def automatic_weights(
        self, task: Task, sampler: DesignSampler, *, relative: float, key: PRNGKeyArray
    ) -> Weights:
        """The variance of the outcomes, or of their steps if that is smaller: there is nothing to
        measure but outcomes, and a score of theirs has the unit 1/y.
        """
        del relative
        outcomes = jit_once(lambda key: standardiser(task, sampler, key=key))(key)
        unit = jnp.asarray(task.designs.loss_unit)
        return Weights(jnp.minimum(outcomes.scale_y, outcomes.scale_step) ** 2, unit**2, 0.0)


def usual_matching(task: Task) -> Matching:
    """Marginal score matching; sliced where the task has no density."""
    return MarginalMatching() if task.has_density else SlicedMatching()


def automatic_weights(
    task: Task, sampler: DesignSampler, *, relative: float = 1.0, key: PRNGKeyArray
) -> Weights:
    """Those of the usual matching. 1,024·T NLE where the task has a density."""
    return usual_matching(task).automatic_weights(task, sampler, relative=relative, key=key)


def score_loss(
    static: PyTree,
    task: Task,
    sampler: DesignSampler,
    weights: Weights,
    *,
    batch: int,
    penalty: float = 0.0,
    policy: Policy | None = None,
    matching: Matching | None = None,
) -> Loss:
    """Score matching on `batch` experiments of the sampler, half of them of a `policy` where one is
    given; the usual `matching` of the task if left out. batch·T NLE a step, and those of the score.

    With `penalty` > 0 the U-statistic of the score's bias is added, from four outcomes each of an
    eighth as many designs; those are always the sampler's, since they must be drawn before the
    data."""
    chosen = matching or usual_matching(task)
    require(
        policy is None or chosen.has_target,
        f"the score of {type(task).__name__}",
        got="experiments of a policy",
        expected="designs drawn before the data, as sliced score matching needs them",
        fix="train it by --method score.",
    )

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        score = eqx.combine(params, static)
        terms = chosen.terms(score, task, sampler, weights, batch=batch, policy=policy, key=key)
        if penalty and chosen.has_target:
            biases = jax.vmap(lambda k: _bias(score, task, sampler, weights, key=k))(
                shard_batch(jr.split(named(key, "bias"), max(1, batch // 8)))
            )
            terms["bias"] = penalty * biases.mean()
        return terms

    return loss


def matching_terms(score: Score, task: Task, runs: Trajectory, weights: Weights) -> Terms:
    """The two terms of marginal score matching, averaged over a batch of experiments; of a score
    that learns the scale of its residuals also that term. Experiments that are not finite are
    dropped and counted (`training/dropped.py`).
    """

    def one(run: Trajectory) -> Any:
        return marginal_score_matching(
            score, task, run, lambda_y=weights.y, lambda_xi=weights.xi, relative=weights.relative
        )

    if score.rescales_residuals:
        terms, weigher = jax.vmap(
            lambda run: rescaled_score_matching(
                score, task, run, lambda_y=weights.y, lambda_xi=weights.xi
            )
        )(runs)
        return mean_of_finite({"y": terms.y, "xi": terms.xi, "weigher": weigher})
    terms = jax.vmap(one)(runs)
    return mean_of_finite({"y": terms.y, "xi": terms.xi})


def _bias(
    score: Score, task: Task, sampler: DesignSampler, weights: Weights, *, key: PRNGKeyArray
) -> Array:
    xis = sampler.sample(key=named(key, "designs"))

    def outcome(key: PRNGKeyArray) -> Array:
        noise = jr.normal(named(key, "noise"), (task.horizon, task.noise_dim))
        return simulate_outcomes(task, task.prior.sample(key=named(key, "theta")), xis, noise)

    ys = jax.vmap(outcome)(jr.split(named(key, "outcomes"), 4))
    parts = bias_penalty(score, ys, xis, lambda_y=weights.y, lambda_xi=weights.xi)
    return parts.y + parts.xi
