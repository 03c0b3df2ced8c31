"""A training run on disk: score → policies → choice → bounds, each stage a resting place.

Every stage has its own key, checkpoints and final file, so that a run that was stopped anywhere goes on there: a stage whose file
exists is loaded, one with checkpoints continues, one with neither starts. Keys follow names and step numbers, so the result does
not depend on how often a run was stopped.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed.bounds import Bounds, eig_bounds
from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.config import PolicyConfig, RunConfig, ScoreConfig
from scorebed.runs.durable import replace_file
from scorebed.runs.folder import RunFolder
from scorebed.runs.leaves import load_leaves, read_metadata, save_leaves
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.bounded import UniformBox
from scorebed.samplers.gaussian import IsotropicGaussian
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score
from scorebed.scores.base import Score
from scorebed.scores.standardise import standardiser
from scorebed.tasks import make_task
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Box
from scorebed.train.fit import FitState, NonFiniteError, StepInfo, start
from scorebed.train.policy import policy_optimiser, train_policies
from scorebed.train.score import PILOT, Weights, automatic_weights, score_optimiser, train_score

CHECKPOINT_SECONDS = 20.0
MONITOR_OUTER = 128
STATIC_SHARE = 0.25
BOUND_FIELDS = ("lower", "lower_se", "upper", "upper_se", "outer", "inner", "ceiling", "saturated")

Monitor: TypeAlias = Callable[[StepInfo], dict[str, Any]]


class Progress:
    """How a run shows itself; this one is silent."""

    def begin(self, stage: str, total: int, done: int) -> None:
        """A stage of `total` units starts, `done` of which were done before."""

    def update(self, done: int, note: str, total: int | None = None) -> None:
        """`done` units are done, of `total` where that was not known before; `note` is the current loss or bound."""

    def end(self, line: str) -> None:
        """The stage is over; `line` says how it went."""


class Execution:
    """One run being carried out: its folder, task and keys, what it has spent, and how long its stages took."""

    def __init__(self, folder: RunFolder, *, progress: Progress):
        self.folder, self.progress = folder, progress
        self.config: RunConfig = folder.config()
        self.task: Task = make_task(self.config.task)
        self.sampler: DesignSampler = paper_sampler(self.task)
        self.key = jr.key(self.config.seed)
        self.ledger, self.evaluation = Ledger(), Ledger()
        self.seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Carry out whatever is left to do; write and give the record."""
        scores = [self.score(index) for index in range(self.config.score.seeds)]
        chosen = [self.choose(repeat, scores) for repeat in range(self.config.repeats)]
        bounds = [self.bounds(f"bounds-{r}", policy) for r, policy in enumerate(chosen)]
        record = self.record(bounds, self.references(scores[0]))
        self.folder.write_json_atomic("record.json", record)
        return record

    def score(self, index: int) -> Score:
        """Stage 1: score number `index`, trained or loaded."""
        config, stage, key = self.config.score, f"score-{index}", named(self.key, "score", index)
        score = fresh_score(config, self.task, self.sampler, key=key)
        if not self.config.score_run:
            steps = config.steps * config.batch * (self.task.horizon + score.nle)
            self.ledger.charge(stage, PILOT * self.task.horizon + steps)
        path = self.folder.path / f"{stage}.safetensors"
        if path.exists():
            return load_score(path, score, self.task)
        optimiser = score_optimiser(
            steps=config.steps,
            learning_rate=config.learning_rate,
            floor_rate=config.floor_rate,
            warmup_share=config.warmup_share,
            clip=config.clip,
        )
        with self._stage(stage, config.steps, start(eqx.filter(score, eqx.is_inexact_array), optimiser)) as keeper:
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
                block=_block(config.steps),
                state=keeper.state,
                on_step=keeper.on_step,
                key=named(key, "train"),
            )
        save_leaves(path, eqx.filter(trained, eqx.is_array), {"task": fingerprint(self.task), "kind": config.kind})
        return trained

    def choose(self, repeat: int, scores: list[Score]) -> Policy:
        """Stage 2: P policies shared out among the scores, and the best of them by a bound of its own draws."""
        config = self.config
        counts = [config.policies // len(scores) + (s < config.policies % len(scores)) for s in range(len(scores))]
        path = self.folder.path / f"policy-{repeat}.safetensors"
        for index, (score, count) in enumerate(zip(scores, counts, strict=True)):
            cost = count * config.policy_training.steps * config.policy_training.batch * (self.task.horizon + score.nle)
            self.ledger.charge(f"policy-{repeat}-{index}", cost)
        template = make_policy(config.policy, self.task, key=jr.key(0))
        if path.exists():
            return load_policy(path, template, self.task)
        groups = [
            self.policies(f"policy-{repeat}-{index}", config.policy, score, count, config.policy_training.steps)
            for index, (score, count) in enumerate(zip(scores, counts, strict=True))
            if count
        ]
        candidates = [member(group, i) for group in groups for i in range(group_size(group))]
        best = candidates[0] if len(candidates) == 1 else self._best(repeat, candidates)
        save_leaves(path, eqx.filter(best, eqx.is_array), {"task": fingerprint(self.task), "policy": config.policy})
        return best

    def policies(self, stage: str, name: str, score: Score, count: int, steps: int) -> Policy:
        """`count` policies of one architecture, trained at once with one score."""
        config, key = self.config.policy_training, named(self.key, stage)
        fresh = eqx.filter_vmap(lambda k: make_policy(name, self.task, key=k))(jr.split(named(key, "init"), count))
        optimiser = policy_optimiser(_schedule(config, steps), clip=config.clip, beta1=config.beta1, beta2=config.beta2)
        template = jax.vmap(lambda p: start(p, optimiser))(eqx.filter(fresh, eqx.is_inexact_array))

        def monitor(info: StepInfo) -> dict[str, Any]:
            if info.step % config.monitor_every and info.step < steps:
                return {}
            policies = eqx.combine(info.state.average, fresh)
            each = [self._small_bound(member(policies, i), config.monitor_inner) for i in range(count)]
            return {"lower": each}

        with self._stage(stage, steps, template, monitor) as keeper:
            return train_policies(
                self.task,
                score,
                fresh,
                steps=steps,
                batch=config.batch,
                optimiser=optimiser,
                decay=config.ema,
                block=min(_block(steps), config.monitor_every),
                state=keeper.state,
                on_step=keeper.on_step,
                key=named(key, "train"),
            )

    def _best(self, repeat: int, candidates: list[Policy]) -> Policy:
        sizes = self.config.evaluation
        self.progress.begin(f"choose-{repeat}", len(candidates), 0)
        lower = []
        for i, policy in enumerate(candidates):
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

    def references(self, score: Score) -> dict[str, Any]:
        """The same bounds for designs that do not look at the data: random, and static ones trained with the same score."""
        path = self.folder.path / "static.safetensors"
        sampler, words = reference_sampler(self.task)
        template = make_policy("static", self.task, key=jr.key(0))
        if path.exists():
            best = load_policy(path, template, self.task)
        else:
            steps = max(1, round(STATIC_SHARE * self.config.policy_training.steps))
            best = member(self.policies("static", "static", score, 1, steps), 0)
            save_leaves(path, eqx.filter(best, eqx.is_array), {"task": fingerprint(self.task), "policy": "static"})
        return {
            "random": self.bounds("bounds-random", RandomDesigns(sampler)) | {"designs": words},
            "static": self.bounds("bounds-static", best) | {"designs": "static designs trained with the same score"},
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

    def _stage(self, stage: str, steps: int, template: FitState, monitor: Monitor = lambda _: {}) -> "Keeper":
        return Keeper(self, stage, steps, template, monitor)

    def _spend(self, stage: str, seconds: float) -> None:
        self.folder.append_metrics({"stage": stage, "step": 1, "seconds": seconds})

    def _all_seconds(self) -> dict[str, float]:
        """Seconds of every stage: the last record of each says how long it has taken so far, over all interruptions."""
        return {str(r["stage"]): round(float(r["seconds"]), 2) for r in self.folder.read_metrics()}  # type: ignore[arg-type]


class Keeper:
    """Keeps a stage of training: metrics and checkpoints at its blocks, the last state when it is stopped."""

    def __init__(self, execution: Execution, stage: str, steps: int, template: FitState, monitor: Monitor):
        self.execution, self.stage, self.steps, self.monitor = execution, stage, steps, monitor
        self.checkpoints = Checkpoints(execution.folder.checkpoint_folder(stage))
        found = self.checkpoints.latest(template)
        self.state: FitState = found.tree if found else template
        self.spent = float(found.extra["seconds"]) if found else 0.0  # type: ignore[arg-type]
        self.done, self.saved = (found.step, found.step) if found else (0, 0)
        execution.folder.truncate_metrics(stage, self.done if found else -1)
        self.begun = self.kept = time.monotonic()

    def __enter__(self) -> "Keeper":
        self.execution.progress.begin(self.stage, self.steps, self.done)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, NonFiniteError):
            self.state, self.done = error.state, int(jnp.max(error.state.step))
        if self.done > self.saved and (kind is None or issubclass(kind, KeyboardInterrupt | NonFiniteError)):
            self._save()
        if kind is None:
            self.execution.progress.end(f"{self.steps} steps in {self.seconds:.0f} s")

    @property
    def seconds(self) -> float:
        """Time spent on the stage, over all interruptions."""
        return self.spent + time.monotonic() - self.begun

    def on_step(self, info: StepInfo) -> None:
        """The hook of `fit`."""
        terms = {name: np.asarray(values).mean(axis=0).tolist() for name, values in info.terms.items()}
        found = self.monitor(info)
        self.state, self.done = info.state, info.step
        self.execution.folder.append_metrics(
            {"stage": self.stage, "step": info.step, "seconds": self.seconds, **terms, **found}
        )
        self.execution.progress.update(info.step, _note(terms, found))
        if time.monotonic() - self.kept > CHECKPOINT_SECONDS or info.step >= self.steps:
            self._save()

    def _save(self) -> None:
        self.checkpoints.save(self.done, self.state, {"seconds": self.seconds})
        self.saved, self.kept = self.done, time.monotonic()


def fingerprint(task: Task) -> str:
    """A short hash of everything that makes a task: class, sizes, prior, horizon."""
    return hashlib.sha256(eqx.tree_pformat(task, width=200, short_arrays=False).encode()).hexdigest()[:16]


def fresh_score(config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Score:
    """An untrained score of the configured kind and sizes."""
    sizes = {name: getattr(config, name) for name in ("particles", "cloud", "width", "blocks", "heads")}
    standardise = standardiser(task, sampler, key=named(key, "standardise"))
    return make_score(config.kind, task, standardise, sizes, key=named(key, "init"))


def load_score(path: Path, like: Score, task: Task) -> Score:
    """A saved score, refused if it was made for another task, prior or horizon."""
    require_made_for(path, task)
    return _with_arrays(like, load_leaves(path, eqx.filter(like, eqx.is_array)))


def load_policy(path: Path, like: Policy, task: Task) -> Policy:
    """A saved policy, refused if it was made for another task, prior or horizon."""
    require_made_for(path, task)
    policy: Policy = _with_arrays(like, load_leaves(path, eqx.filter(like, eqx.is_array)))
    return policy


def check_score(run: Path, task: Task) -> dict[str, Any]:
    """The settings under which a run takes over the scores of another, refused unless they were made for this task."""
    source = RunFolder.open(run)
    config = source.config()
    paths = [run / f"score-{index}.safetensors" for index in range(config.score.seeds)]
    for path in paths:
        if not path.exists():
            raise InvalidValueError(
                f"the run {run}",
                got=f"no {path.name} in it",
                expected="a run whose scores are trained",
                fix=f"finish it first: scorebed resume {run}",
            )
        require_made_for(path, task)
    return {"score_run": str(run), "score": dataclasses.asdict(config.score)}


def copy_scores(run: Path, folder: RunFolder) -> None:
    """Copy the scores of another run, so that the new one stands on its own."""
    for index in range(folder.config().score.seeds):
        name = f"score-{index}.safetensors"
        replace_file(folder.path / name, (run / name).read_bytes())


def require_made_for(path: Path, task: Task) -> None:
    """Refuse a file that was made for another task, prior or horizon."""
    made_for = read_metadata(path).get("task")
    if made_for != fingerprint(task):
        raise InvalidValueError(
            f"the file {path}",
            got=f"one made for another task, prior or horizon ({made_for})",
            expected=f"one made for this {type(task).__name__} ({fingerprint(task)})",
            fix="train a score for this task.",
        )


def reference_sampler(task: Task) -> tuple[DesignSampler, str]:
    """Random designs to beat, and what they are in words."""
    if isinstance(task.designs, Box):
        return UniformBox(task.horizon, task.designs), "independent uniform designs in the box"
    return IsotropicGaussian(task.horizon, task.designs), "independent Gaussian designs, one design unit wide"


def member(batch: Policy, index: int) -> Policy:
    """Policy number `index` of a batch."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, batch)


def group_size(batch: Policy) -> int:
    """How many policies a batch holds."""
    return int(jax.tree.leaves(eqx.filter(batch, eqx.is_array))[0].shape[0])


def _with_arrays(like: Any, arrays: PyTree) -> Any:
    return eqx.combine(arrays, eqx.filter(like, eqx.is_array, inverse=True))


def _weights(config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Weights:
    own = 1.0 if config.weights == "own" else 0.0
    if config.lambda_y == "auto":
        return automatic_weights(task, sampler, own=own, key=key)
    return Weights(jnp.asarray(config.lambda_y), jnp.ones(()), own)


def _schedule(config: PolicyConfig, steps: int) -> optax.Schedule | float:
    if config.schedule == "cosine":
        return optax.cosine_decay_schedule(config.learning_rate, steps, config.final_rate / config.learning_rate)
    if config.schedule == "exponential":
        return optax.exponential_decay(config.learning_rate, config.decay_every, config.decay_rate)
    return config.learning_rate


def _block(steps: int) -> int:
    """Steps per compiled call: few enough for a progress bar that moves."""
    return max(1, min(50, steps // 20))


def _mean(bounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Bounds averaged over repeats; standard errors as of a mean of independent ones."""
    n = len(bounds)
    mean = {name: sum(b[name] for b in bounds) / n for name in BOUND_FIELDS}
    return mean | {name: sum(b[name] ** 2 for b in bounds) ** 0.5 / n for name in ("lower_se", "upper_se")}


def _note(terms: dict[str, Any], found: dict[str, Any]) -> str:
    if "lower" in found:
        return f"{max(found['lower']):.2f} nats"
    return ", ".join(f"{name} {np.mean(value):.3g}" for name, value in terms.items())
