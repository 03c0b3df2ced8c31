"""Stage 2 on disk: policies of one architecture, trained by the configured method, kept while they
train.

Every way of training gives a batch of what it trains: policies, or pairs of a policy and the score
or posterior made for it."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed._jit import jit_once
from scorebed.baselines.iosmc.training import IOSMCSettings, realised_nle, start_iosmc, train_iosmc
from scorebed.bounds.contrastive import eig_bounds
from scorebed.bounds.design_cost import expected_cost
from scorebed.bounds.importance import importance_bounds
from scorebed.estimators.score import check_additive_noise
from scorebed.inference.laplace import laplace_posterior
from scorebed.keys import named
from scorebed.policies import make_policy
from scorebed.policies.base import Policy, StochasticPolicy
from scorebed.runs.artifacts import posterior_maker
from scorebed.runs.budget import groups
from scorebed.runs.config import RunConfig
from scorebed.runs.folder import RunFolder
from scorebed.runs.rungs import room, rungs
from scorebed.runs.sections import PolicyConfig
from scorebed.runs.stage import Monitor, Progress, StageCheckpointer, block_size
from scorebed.runs.upfront import density_optimiser, residual_weights
from scorebed.samplers.base import DesignSampler
from scorebed.scores.base import Score
from scorebed.tasks.base import Task
from scorebed.training.contrastive import mlmc_loss, nmc_loss, pce_loss
from scorebed.training.fit import Gradient, Loss, StepInfo, gradient_of, start_batch
from scorebed.training.joint import Pair, joint_gradient, joint_optimiser, pairs
from scorebed.training.policy import (
    faster_noise,
    fit_batch,
    fresh_policies,
    group_size,
    member,
    members,
    policy_gradient,
    policy_optimiser,
)
from scorebed.training.score import score_optimiser
from scorebed.training.variational import (
    PosteriorAndPolicy,
    joint_posterior_loss,
    joint_posterior_optimiser,
)
from scorebed.training.variational import policy_gradient as density_gradient

MONITOR_OUTER = 128


class Stage2:
    """The training of policies in a run."""

    def __init__(
        self,
        folder: RunFolder,
        task: Task,
        sampler: DesignSampler,
        *,
        progress: Progress,
        key: PRNGKeyArray,
    ):
        self.folder, self.task, self.sampler, self.progress, self.key = (
            folder,
            task,
            sampler,
            progress,
            key,
        )
        self.config: RunConfig = folder.config()

    def train(self, stage: str, name: str, learned: Any, count: int, config: PolicyConfig) -> Any:
        """`count` policies of one architecture, each with whatever the method makes for it."""
        special: dict[str, Callable[..., Any]] = {
            "jointscore": self.jointly,
            "jointvarpost": self.with_posterior,
            "iosmc": self.nested,
        }
        return special.get(self.config.method, self.policies)(stage, name, learned, count, config)

    def policies(
        self, stage: str, name: str, learned: Any, count: int, config: PolicyConfig
    ) -> Policy:
        """`count` policies of one architecture, trained at once with one score or density, or with
        an estimator without.
        """
        fresh = fresh_policies(name, self.task, count, key=named(self.key, stage, "init"))
        gradient = self._estimator(learned, config)
        trained: Policy = self._train(
            stage, fresh, gradient, _policy_optimiser(config), config, lambda both: both
        )
        return trained

    def _estimator(self, learned: Any, config: PolicyConfig) -> Callable[[PyTree], Gradient]:
        """The gradient of the configured method, given what of a policy is not trained."""
        task, batch, limit = self.task, config.batch, config.limit
        if isinstance(learned, Score):
            check_additive_noise(task, key=named(self.key, "check"))
            return lambda rest: policy_gradient(rest, task, learned, batch=batch, limit=limit)
        if learned is not None:
            check_additive_noise(task, key=named(self.key, "check"))
            return lambda rest: density_gradient(rest, task, learned, batch=batch, limit=limit)
        losses: dict[str, Callable[[PyTree], Loss]] = {
            "nmc": lambda rest: nmc_loss(rest, task, batch=batch, inner=config.inner),
            "mlmc": lambda rest: mlmc_loss(
                rest, task, batch=batch, base=config.base, cap=config.levels, tau=config.tau
            ),
        }
        loss = losses.get(
            self.config.method, lambda rest: pce_loss(rest, task, batch=batch, inner=config.inner)
        )
        return lambda rest: gradient_of(loss(rest))

    def _train(
        self,
        stage: str,
        fresh: Any,
        gradient: Callable[[PyTree], Gradient],
        optimiser: optax.GradientTransformation,
        config: PolicyConfig,
        policies: Callable[[Any], Any],
    ) -> Any:
        """A batch of whatever is trained in stage 2, kept on disk; `policies` takes the policies
        out of it.
        """
        template = start_batch(eqx.filter(fresh, eqx.is_inexact_array), optimiser)
        ladder = rungs(config, group_size(fresh))
        halved = len(ladder) > 1
        ends = [rung.end for rung in ladder]
        monitor = self._monitor(
            config, lambda average: eqx.combine(policies(average), policies(fresh)), ends
        )
        # Without a density no estimate is cheap enough to be made along the way: every step is
        # taken, and the last one kept.
        patience = config.patience if self.task.has_density else 0
        fewer = partial(room, ladder) if halved else None
        with StageCheckpointer(
            self.folder, self.progress, stage, config.steps, template, monitor, patience, fewer
        ) as keeper:
            last = fit_batch(
                gradient,
                fresh,
                steps=keeper.steps,
                optimiser=optimiser,
                decay=config.ema,
                block=block_size(config.steps, config.monitor_every),
                state=keeper.kept.state,
                on_step=keeper.on_step,
                members=keeper.members,
                key=named(self.key, stage, "train"),
            )
        trained = (
            eqx.combine(keeper.kept.best, last)
            if config.keep == "best" and self.task.has_density
            else last
        )
        if not halved:
            return trained
        steps = np.asarray(keeper.kept.state.step).tolist()
        self.folder.write_json_atomic(
            f"{stage}.json", {"steps": steps, "survivors": list(keeper.members)}
        )
        return members(trained, keeper.members)

    def jointly(
        self, stage: str, name: str, score: Score, count: int, config: PolicyConfig
    ) -> Pair:
        """`count` policies of one architecture, each trained together with its own copy of the
        score.
        """
        task, sampler, of_score = self.task, self.sampler, self.config.score
        check_additive_noise(task, key=named(self.key, "check"))
        fresh = pairs(score, fresh_policies(name, task, count, key=named(self.key, stage, "init")))
        slow = score_optimiser(
            steps=config.steps,
            learning_rate=of_score.joint_rate,
            clip=of_score.clip,
            floor_rate=0.0,
        )
        weights = residual_weights(
            of_score, task, sampler, key=named(self.key, "score", 0, "weights")
        )
        batch = Pair(of_score.batch, config.batch)
        trained: Pair = self._train(
            stage,
            fresh,
            lambda rest: joint_gradient(
                rest, task, sampler, weights, batch=batch, limit=config.limit
            ),
            joint_optimiser(slow, _policy_optimiser(config)),
            config,
            lambda both: both.policy,
        )
        return trained

    def with_posterior(
        self, stage: str, name: str, _: None, count: int, config: PolicyConfig
    ) -> PosteriorAndPolicy:
        """`count` policies of one architecture, each trained together with a posterior of its own
        (JointVarPost).
        """
        task, key = self.task, named(self.key, stage, "init")
        make = eqx.filter_vmap(posterior_maker(self.config.density, task, self.sampler))
        posteriors = jit_once(make)(jr.split(named(key, "posterior"), count))
        trained: PosteriorAndPolicy = self._train(
            stage,
            PosteriorAndPolicy(posteriors, fresh_policies(name, task, count, key=key)),
            lambda rest: gradient_of(joint_posterior_loss(rest, task, batch=config.batch)),
            joint_posterior_optimiser(
                density_optimiser(self.config.density, config.steps), _policy_optimiser(config)
            ),
            config,
            lambda both: both.policy,
        )
        return trained

    def nested(self, stage: str, name: str, _: None, __: int, config: PolicyConfig) -> Policy:
        """One policy by IO-SMC², as a batch of one."""
        task, sizes, budget = self.task, self.config.iosmc, self.config.budget
        policy = make_policy(name, task, key=named(self.key, stage, "init"))
        settings = IOSMCSettings(
            trajectories=sizes.trajectories,
            particles=sizes.particles,
            moves=sizes.moves,
            batch=config.batch,
            tempering=sizes.tempering,
            penalty=sizes.penalty,
        )
        optimiser = _policy_optimiser(config)
        assert isinstance(policy, StochasticPolicy), "the command line refuses others"
        template = start_iosmc(task, policy, optimiser)
        monitor = self._monitor(config, lambda average: _batch_of_one(eqx.combine(average, policy)))
        with StageCheckpointer(
            self.folder, self.progress, stage, config.steps, template, monitor, config.patience
        ) as keeper:
            last, state = train_iosmc(
                task,
                policy,
                settings,
                iterations=keeper.steps,
                optimiser=optimiser,
                budget=budget // len(groups(self.config)) if budget else None,
                state=keeper.kept.state,
                on_step=keeper.on_step,
                key=named(self.key, stage, "train"),
            )
        self.folder.write_json_atomic(f"{stage}.json", {"nle": realised_nle(state)})
        return _batch_of_one(last if config.keep == "last" else eqx.combine(keeper.kept.best, last))

    def _monitor(
        self, config: PolicyConfig, policies: Callable[[Any], Policy], ends: Sequence[int] = ()
    ) -> Monitor:
        """A small lower bound of every restart at every `monitor_every` steps, at the `ends` of
        rungs and at the last step.

        It is NaN for those that were stopped before.
        """

        def monitor(info: StepInfo) -> list[float]:
            due = (
                info.step % config.monitor_every == 0
                or info.step in ends
                or info.step >= config.steps
            )
            if not self.task.has_density or not due:
                return []
            batch = policies(info.state.average)
            reached = np.atleast_1d(info.state.step)
            sizes: dict[str, Any] = {"outer": MONITOR_OUTER, "inner": config.monitor_inner}
            how: dict[str, Any] = sizes | {
                "kind": config.monitor,
                "key": named(self.key, "monitor"),
            }
            return [
                estimated_gain(self.task, member(batch, i), **how)
                if reached[i] == info.step
                else math.nan
                for i in range(group_size(batch))
            ]

        return monitor


def estimated_gain(
    task: Task, policy: Policy, *, kind: str, outer: int, inner: int, key: PRNGKeyArray
) -> float:
    """A lower bound to train and choose by, less what the designs cost.

    A contrastive one cannot tell policies apart that gain more than log(inner + 1) nats; one by
    importance can."""
    if kind == "importance":
        found = importance_bounds(
            task, policy, outer=outer, inner=inner, propose=laplace_posterior, key=key
        )
    else:
        found = eig_bounds(task, policy, outer=outer, inner=inner, key=key)
    return found.lower - expected_cost(task, policy, outer=outer, key=key).nats


def _batch_of_one(policy: Policy) -> Policy:
    batch: Policy = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, policy)
    return batch


def _policy_optimiser(config: PolicyConfig) -> optax.GradientTransformation:
    plain = policy_optimiser(
        _schedule(config), clip=config.clip, beta1=config.beta1, beta2=config.beta2
    )
    return plain if config.noise_rate == 1 else optax.chain(plain, faster_noise(config.noise_rate))


def _schedule(config: PolicyConfig) -> optax.Schedule | float:
    if config.schedule == "cosine":
        return optax.cosine_decay_schedule(
            config.learning_rate, config.steps, config.final_rate / config.learning_rate
        )
    if config.schedule == "exponential":
        return optax.exponential_decay(config.learning_rate, config.decay_every, config.decay_rate)
    return config.learning_rate
