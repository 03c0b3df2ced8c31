"""A training run on disk: score → policies → choice → bounds, each stage a resting place.

With the method `jointscore` the score goes on learning beside every policy, from where stage 1 left it.

Every stage has its own key, checkpoints and final file, so that a run that was stopped anywhere goes on there: a stage whose file
exists is loaded, one with checkpoints continues, one with neither starts. Keys follow names and step numbers, so the result does
not depend on how often a run was stopped.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed.bounds import Bounds, eig_bounds
from scorebed.estimators.score import check_additive_noise
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.runs.artifacts import JOINT_SCORE, fingerprint, fresh_score, load_policy, load_score
from scorebed.runs.budget import BY_SCORE, policy_cost
from scorebed.runs.config import PolicyConfig, RunConfig, ScoreConfig
from scorebed.runs.folder import RunFolder
from scorebed.runs.keeper import Keeper, Monitor, Progress
from scorebed.runs.leaves import save_leaves
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.bounded import UniformBox
from scorebed.samplers.gaussian import IsotropicGaussian
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.base import Score
from scorebed.scores.standardise import standardiser
from scorebed.scores.weighed import Weighed, Weigher
from scorebed.tasks import make_task
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Box
from scorebed.train.contrastive import nmc_loss, pce_loss
from scorebed.train.fit import Gradient, Loss, StepInfo, gradient_of, start, start_batch
from scorebed.train.joint import Pair, joint_optimiser, pairs, train_jointly
from scorebed.train.policy import fit_batch, fresh_policies, group_size, member, policy_gradient, policy_optimiser
from scorebed.train.score import PILOT, Weights, automatic_weights, score_optimiser, train_score

MONITOR_OUTER = 128
# The static reference: designs themselves are its parameters, of order one, so it takes larger steps than a network.
STATIC_STEPS, STATIC_RATE = 300, 0.03
BOUND_FIELDS = ("lower", "lower_se", "upper", "upper_se", "outer", "inner", "ceiling", "saturated")


class Execution:
    """One run being carried out: its folder, task and keys, what it has spent, and how long its stages took."""

    def __init__(self, folder: RunFolder, *, progress: Progress):
        self.folder, self.progress = folder, progress
        self.config: RunConfig = folder.config()
        self.task: Task = make_task(self.config.task)
        self.sampler: DesignSampler = paper_sampler(self.task)
        self.key = jr.key(self.config.seed)
        self.ledger, self.evaluation = Ledger(self.config.budget or None), Ledger()
        self.seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Carry out whatever is left to do; write and give the record."""
        self.folder.write_env()
        by_score = self.config.method in BY_SCORE
        scores = [self.score(index) for index in range(self.config.score.seeds)] if by_score else [None]
        chosen = [self.choose(repeat, scores) for repeat in range(self.config.repeats)]
        bounds = [self.bounds(f"bounds-{r}", policy) for r, policy in enumerate(chosen)]
        record = self.record(bounds, self.references(scores[0]))
        self.folder.write_json_atomic("record.json", record)
        return record

    def score(self, index: int) -> Score:
        """Stage 1: score number `index`, trained or loaded."""
        config, stage, key = self.config.score, f"score-{index}", named(self.key, "score", index)
        path = self.folder.path / f"{stage}.safetensors"
        saved = path.exists()
        score = (
            load_score(path, config, self.task, self.sampler)
            if saved
            else fresh_score(config, self.task, self.sampler, key=key)
        )
        if not self.config.score_run:
            steps = config.steps * config.batch * (self.task.horizon + score.nle)
            self.ledger.charge(stage, PILOT * self.task.horizon + steps)
        elif self.config.method == "jointscore" and index == 0:
            self.ledger.charge("weights", PILOT * self.task.horizon)
        if saved:
            return score
        if config.weights == "learned":
            standardise = standardiser(self.task, self.sampler, key=named(key, "standardise"))
            score = Weighed(score, Weigher(self.task, standardise, key=named(key, "weigher")))
        optimiser = score_optimiser(
            steps=config.steps,
            learning_rate=config.learning_rate,
            floor_rate=config.floor_rate,
            warmup_share=config.warmup_share,
            clip=config.clip,
        )
        with Keeper(
            self.folder, self.progress, stage, config.steps, start(eqx.filter(score, eqx.is_inexact_array), optimiser)
        ) as keeper:
            trained = train_score(
                self.task,
                score,
                self.sampler,
                steps=config.steps,
                batch=config.batch,
                optimiser=optimiser,
                decay=config.ema,
                penalty=config.bias_penalty,
                weights=_weights(config, self.task, self.sampler, key=named(key, "weights")),
                block=block_size(config.steps),
                state=keeper.kept.state,
                on_step=keeper.on_step,
                key=named(key, "train"),
            )
        trained = trained.score if isinstance(trained, Weighed) else trained
        save_leaves(path, eqx.filter(trained, eqx.is_array), {"task": fingerprint(self.task), "kind": config.kind})
        return trained

    def choose(self, repeat: int, scores: Sequence[Score | None]) -> Policy:
        """Stage 2: P policies shared out among the scores, and the best of them by a bound of its own draws."""
        config = self.config
        counts = [config.policies // len(scores) + (s < config.policies % len(scores)) for s in range(len(scores))]
        path = self.folder.path / f"policy-{repeat}.safetensors"
        for index, count in enumerate(counts):
            self.ledger.charge(f"policy-{repeat}-{index}", count * policy_cost(config, self.task))
        if path.exists():
            return load_policy(path, config.policy, self.task)
        train: Callable[..., Any] = self.jointly if config.method == "jointscore" else self.policies
        groups = [
            train(f"policy-{repeat}-{index}", config.policy, score, count, config.policy_training)
            for index, (score, count) in enumerate(zip(scores, counts, strict=True))
            if count
        ]
        candidates = [member(group, i) for group in groups for i in range(group_size(group))]
        best = candidates[0] if len(candidates) == 1 else self._best(repeat, candidates)
        made_for = {"task": fingerprint(self.task), "policy": config.policy}
        if isinstance(best, Pair):
            name = JOINT_SCORE.format(repeat)
            marks = made_for | {"kind": config.score.kind, "specialised": "to the policy it was trained with"}
            save_leaves(self.folder.path / name, eqx.filter(best.score, eqx.is_array), marks)
        chosen: Policy = best.policy if isinstance(best, Pair) else best
        save_leaves(path, eqx.filter(chosen, eqx.is_array), made_for)
        return chosen

    def policies(self, stage: str, name: str, score: Score | None, count: int, config: PolicyConfig) -> Policy:
        """`count` policies of one architecture, trained at once with one score, or with an estimator that needs none."""
        steps, key = config.steps, named(self.key, stage)
        fresh = fresh_policies(name, self.task, count, key=named(key, "init"))
        optimiser = _policy_optimiser(config)
        template = start_batch(eqx.filter(fresh, eqx.is_inexact_array), optimiser)
        monitor = self._monitor(config, lambda average: eqx.combine(average, fresh))
        with Keeper(self.folder, self.progress, stage, steps, template, monitor) as keeper:
            last = fit_batch(
                self._estimator(score, config),
                fresh,
                steps=steps,
                optimiser=optimiser,
                decay=config.ema,
                block=block_size(steps, config.monitor_every),
                state=keeper.kept.state,
                on_step=keeper.on_step,
                key=named(key, "train"),
            )
        return last if config.keep == "last" else eqx.combine(keeper.kept.best, last)

    def _estimator(self, score: Score | None, config: PolicyConfig) -> Callable[[PyTree], Gradient]:
        """The gradient of the configured method, given what of a policy is not trained."""
        task, batch = self.task, config.batch
        if score is not None:
            check_additive_noise(task, key=named(self.key, "check"))
            return lambda rest: policy_gradient(rest, task, score, batch=batch, limit=config.limit)
        losses: dict[str, Callable[[PyTree], Loss]] = {
            "pce": lambda rest: pce_loss(rest, task, batch=batch, inner=config.inner),
            "nmc": lambda rest: nmc_loss(rest, task, batch=batch, inner=config.inner),
        }
        loss = losses[self.config.method]
        return lambda rest: gradient_of(loss(rest))

    def jointly(self, stage: str, name: str, score: Score, count: int, config: PolicyConfig) -> Pair:
        """`count` policies of one architecture, each trained together with its own copy of the score."""
        steps, key = config.steps, named(self.key, stage)
        fresh = pairs(score, fresh_policies(name, self.task, count, key=named(key, "init")))
        of_score = score_optimiser(
            steps=steps, learning_rate=self.config.score.joint_rate, clip=self.config.score.clip, floor_rate=0.0
        )
        optimiser = joint_optimiser(of_score, _policy_optimiser(config))
        template = start_batch(eqx.filter(fresh, eqx.is_inexact_array), optimiser)
        monitor = self._monitor(config, lambda average: eqx.combine(average.policy, fresh.policy))
        weights = _weights(self.config.score, self.task, self.sampler, key=named(self.key, "score", 0, "weights"))
        with Keeper(self.folder, self.progress, stage, steps, template, monitor) as keeper:
            last = train_jointly(
                self.task,
                fresh,
                self.sampler,
                steps=steps,
                batch=Pair(self.config.score.batch, config.batch),
                optimiser=optimiser,
                weights=weights,
                decay=config.ema,
                limit=config.limit,
                block=block_size(steps, config.monitor_every),
                state=keeper.kept.state,
                on_step=keeper.on_step,
                key=named(key, "train"),
            )
        return last if config.keep == "last" else eqx.combine(keeper.kept.best, last)

    def _monitor(self, config: PolicyConfig, policies: Callable[[Any], Policy]) -> Monitor:
        """A small lower bound of every restart at every `monitor_every` steps and at the last."""

        def monitor(info: StepInfo) -> list[float]:
            if info.step % config.monitor_every and info.step < config.steps:
                return []
            batch = policies(info.state.average)
            return [self._small_bound(member(batch, i), config.monitor_inner) for i in range(group_size(batch))]

        return monitor

    def _best(self, repeat: int, candidates: list[Any]) -> Any:
        sizes = self.config.evaluation
        self.progress.begin(f"choose-{repeat}", len(candidates), 0)
        lower = []
        for i, candidate in enumerate(candidates):
            policy = candidate.policy if isinstance(candidate, Pair) else candidate
            found = self._bound(f"choose-{repeat}-{i}", policy, sizes.select_outer, sizes.select_inner)
            lower.append(found.lower)
            self.progress.update(i + 1, f"best {max(lower):.2f} nats")
        best = int(np.argmax(lower))
        self.folder.write_json_atomic(f"choice-{repeat}.json", {"lower": lower, "best": best})
        self.progress.end(f"policy {best + 1} of {len(lower)} is the best, {max(lower):.2f} nats")
        return candidates[best]

    def bounds(self, stage: str, policy: Policy) -> dict[str, Any]:
        """Bounds of the reported size, on draws of their own; from their file if they were computed before."""
        sizes = self.config.evaluation
        self.evaluation.charge(stage, sizes.outer * (sizes.inner + 1) * self.task.horizon)
        if (self.folder.path / f"{stage}.json").exists():
            return dict(self.folder.read_json(f"{stage}.json"))  # type: ignore[arg-type]
        self.progress.begin(stage, 0, 0)
        begun = time.monotonic()
        found = eig_bounds(
            self.task,
            policy,
            outer=sizes.outer,
            inner=sizes.inner,
            on_group=lambda done, total: self.progress.update(done, "", total),
            key=named(self.key, stage),
        )
        self._spend(stage, time.monotonic() - begun)
        values = {name: getattr(found, name) for name in BOUND_FIELDS}
        self.folder.write_json_atomic(f"{stage}.json", values)
        self.progress.end(str(found))
        return values

    def references(self, score: Score | None) -> dict[str, Any]:
        """The same bounds for designs that do not look at the data: random, and static ones trained with the same score."""
        path = self.folder.path / "static.safetensors"
        sampler, words = reference_sampler(self.task)
        if path.exists():
            best = load_policy(path, "static", self.task)
        else:
            best = member(self.policies("static", "static", score, 1, _static(self.config.policy_training)), 0)
            save_leaves(path, eqx.filter(best, eqx.is_array), {"task": fingerprint(self.task), "policy": "static"})
        return {
            "random": self.bounds("bounds-random", RandomDesigns(sampler)) | {"designs": words},
            "static": self.bounds("bounds-static", best) | {"designs": "static designs trained by the same method"},
        }

    def record(self, bounds: list[dict[str, Any]], references: dict[str, Any]) -> dict[str, Any]:
        """What `train --json` answers."""
        lowers = [b["lower"] for b in bounds]
        first = bounds[int(np.argmax(lowers))] if len(bounds) == 1 else _mean(bounds)
        spread = {"lower_se_repeats": float(np.std(lowers, ddof=1) / len(lowers) ** 0.5)} if len(bounds) > 1 else {}
        seconds = self._all_seconds()
        return {
            "run": self.folder.path.name,
            "task": self.config.task,
            "method": self.config.method,
            "preset": self.config.preset,
            "policy": self.config.policy,
            "policies": self.config.policies,
            "seed": self.config.seed,
            **{name: first[name] for name in BOUND_FIELDS},
            **spread,
            "nle": self.ledger.spent,
            "nle_stages": self.ledger.totals,
            "nle_evaluation": self.evaluation.spent,
            "seconds": seconds | {"total": round(sum(seconds.values()), 1)},
            "references": references,
        }

    def _small_bound(self, policy: Policy, inner: int) -> float:
        return self._bound("monitor", policy, MONITOR_OUTER, inner).lower

    def _bound(self, stage: str, policy: Policy, outer: int, inner: int) -> Bounds:
        return eig_bounds(self.task, policy, outer=outer, inner=inner, key=named(self.key, stage))

    def _spend(self, stage: str, seconds: float) -> None:
        self.folder.append_metrics({"stage": stage, "step": 1, "seconds": seconds})

    def _all_seconds(self) -> dict[str, float]:
        """Seconds of every stage: the last record of each says how long it has taken so far, over all interruptions."""
        return {str(r["stage"]): round(float(r["seconds"]), 2) for r in self.folder.read_metrics()}  # type: ignore[arg-type]


def reference_sampler(task: Task) -> tuple[DesignSampler, str]:
    """Random designs to beat, and what they are in words."""
    if isinstance(task.designs, Box):
        return UniformBox(task.horizon, task.designs), "independent uniform designs in the box"
    return IsotropicGaussian(task.horizon, task.designs), "independent Gaussian designs, one design unit wide"


def _weights(config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Weights:
    own = 0.0 if config.weights == "none" else 1.0
    if config.lambda_y == "auto":
        return automatic_weights(task, sampler, own=own, key=key)
    return Weights(jnp.asarray(config.lambda_y), jnp.ones(()), own)


def _static(config: PolicyConfig) -> PolicyConfig:
    return dataclasses.replace(
        config, steps=min(STATIC_STEPS, config.steps), learning_rate=STATIC_RATE, schedule="cosine", limit=0.0
    )


def _policy_optimiser(config: PolicyConfig) -> optax.GradientTransformation:
    return policy_optimiser(_schedule(config), clip=config.clip, beta1=config.beta1, beta2=config.beta2)


def _schedule(config: PolicyConfig) -> optax.Schedule | float:
    if config.schedule == "cosine":
        return optax.cosine_decay_schedule(config.learning_rate, config.steps, config.final_rate / config.learning_rate)
    if config.schedule == "exponential":
        return optax.exponential_decay(config.learning_rate, config.decay_every, config.decay_rate)
    return config.learning_rate


def block_size(steps: int, every: int = 0) -> int:
    """Steps per compiled call: few enough for a progress bar that moves, and a divisor of `every`, where blocks must end."""
    largest = max(1, min(50, steps // 20))
    return next(size for size in range(largest, 0, -1) if every % size == 0)


def _mean(bounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Bounds averaged over repeats; standard errors as of a mean of independent ones."""
    n = len(bounds)
    mean = {name: sum(b[name] for b in bounds) / n for name in BOUND_FIELDS}
    return mean | {name: sum(b[name] ** 2 for b in bounds) ** 0.5 / n for name in ("lower_se", "upper_se")}
