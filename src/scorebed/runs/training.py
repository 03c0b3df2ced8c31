"""A training run on disk: score → policies → choice → bounds, each stage a resting place.

With the method `jointscore` the score goes on learning beside every policy, from where stage 1 left
it.

Every stage has its own key, checkpoints and final file, so that a run that was stopped anywhere
goes on there: a stage whose file exists is loaded, one with checkpoints continues, one with neither
starts. Keys follow names and step numbers, so the result does not depend on how often a run was
stopped."""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from scorebed.bounds.design_cost import expected_cost
from scorebed.diagnostics import coverage
from scorebed.estimators.mlmc import expected_nle, padded_nle
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.runs.artifacts import (
    JOINT_POSTERIOR,
    JOINT_SCORE,
    fingerprint,
    load_policy,
    untrained_policy,
)
from scorebed.runs.budget import group_cost, groups, parts, restarts_cost, upfront_cost
from scorebed.runs.config import RunConfig
from scorebed.runs.evaluation import about, policy_bounds, policy_bounds_nle
from scorebed.runs.folder import RunFolder
from scorebed.runs.methods import UNTRAINED, UPFRONT
from scorebed.runs.rungs import rungs
from scorebed.runs.sections import PolicyConfig
from scorebed.runs.serialisation import save_leaves
from scorebed.runs.stage import Progress, StageCheckpointer, block_size
from scorebed.runs.stage2 import Stage2, estimated_gain
from scorebed.runs.upfront import load_upfront, stage_1
from scorebed.runs.user_task import UserTask, is_user_task, task_of
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.paper import paper_sampler, reference_sampler
from scorebed.samplers.spaced import spaced_designs
from scorebed.tasks.base import Task
from scorebed.training.fit import start
from scorebed.training.joint import Pair
from scorebed.training.policy import member
from scorebed.training.variational import PosteriorAndPolicy

# The static reference: designs themselves are its parameters, of order one, so it takes larger
# steps than a network.
REACH = "coverage.json"
STATIC_STEPS, STATIC_BATCH, STATIC_RATE = 300, 256, 0.03
COST_FIELDS = ("cost", "cost_se", "cost_nats")
BOUND_FIELDS = ("lower", "lower_se", "upper", "upper_se", "outer", "inner", "ceiling", "saturated")


class Execution:
    """One run being carried out: its folder, task and keys, what it has spent, and how long its
    stages took.
    """

    def __init__(
        self, folder: RunFolder, *, progress: Progress, task: UserTask | Task | None = None
    ):
        """`task` is that of a run of the user's own one, and of no other run."""
        self.folder, self.progress = folder, progress
        self.config: RunConfig = folder.config()
        self.task: Task = task_of(self.config, task, strict=True)
        self.sampler: DesignSampler = paper_sampler(self.task)
        self.key = jr.key(self.config.seed)
        self.ledger, self.evaluation = Ledger(self.config.budget or None), Ledger()
        self.stage_2 = Stage2(folder, self.task, self.sampler, progress=progress, key=self.key)

    def run(self) -> dict[str, Any]:
        """Carry out whatever is left to do; write and give the record."""
        self.folder.write_env()
        two_stages = self.config.method in UPFRONT
        learned = [
            self.upfront(index) if two_stages else None for index in range(parts(self.config))
        ]
        chosen = [self.choose(repeat, learned) for repeat in range(self.config.repeats)]
        bounds = [self.bounds(f"bounds-{r}", policy) for r, policy in enumerate(chosen)]
        record = self.record(
            bounds, self.references(learned[0]) if self.config.evaluation.references else {}
        )
        record |= self._reach(chosen[0])
        self.folder.write_json_atomic("record.json", record)
        return record

    def upfront(self, index: int) -> Any:
        """Stage 1: score or density number `index`, trained or loaded."""
        learned = UPFRONT[self.config.method]
        stage, key = f"{learned.stem}-{index}", named(self.key, learned.stem, index)
        path = self.folder.path / f"{stage}.safetensors"
        if cost := upfront_cost(self.config, self.task):
            self.ledger.charge("weights" if self.config.score_run else stage, cost)
        if path.exists():
            return load_upfront(path, self.config, self.task, self.sampler)
        work = stage_1(self.config, self.task, self.sampler, key=key)
        if work.steps == 0:
            return self._store(path, learned.stem, work.fresh)
        template = start(eqx.filter(work.fresh, eqx.is_inexact_array), work.optimiser)
        with StageCheckpointer(self.folder, self.progress, stage, work.steps, template) as keeper:
            trained = work.train(
                block=block_size(work.steps),
                state=keeper.kept.state,
                on_step=keeper.on_step,
                key=named(key, "train"),
            )
        return self._store(path, learned.stem, trained)

    def _store(self, path: Path, stem: str, learned: Any) -> Any:
        kind = self.config.score.kind if stem == "score" else "density"
        save_leaves(
            path, eqx.filter(learned, eqx.is_array), {"task": fingerprint(self.task), "kind": kind}
        )
        return learned

    def choose(self, repeat: int, learned: Sequence[Any]) -> Policy:
        """Stage 2: P policies shared out among the scores, and the best of them by a bound of its
        own draws.
        """
        config = self.config
        if config.method in UNTRAINED:
            return untrained_policy(config, self.task)
        path = self.folder.path / f"policy-{repeat}.safetensors"
        stages = groups(config)[repeat * len(learned) : (repeat + 1) * len(learned)]
        share = config.budget // len(groups(config)) if config.budget else None
        for stage, count in stages:
            most = group_cost(config, self.task, stage, count, config.policy_training.steps)
            self.ledger.charge(
                stage, most if share is None or config.method != "iosmc" else min(most, share)
            )
        if path.exists():
            chosen = load_policy(path, config.policy, self.task)
        else:
            candidates: dict[int, Any] = {}
            first = 0
            for upfront, (stage, count) in zip(learned, stages, strict=True):
                if count:
                    group = self.stage_2.train(
                        stage, config.policy, upfront, count, config.policy_training
                    )
                    candidates |= {
                        first + n: member(group, i)
                        for i, n in enumerate(self._survivors(stage, count))
                    }
                first += count
            chosen = self.keep(repeat, self._best(repeat, candidates))
        for stage, count in stages:
            self.ledger.settle(stage, self._spent(stage, count))
        return chosen

    def _spent(self, stage: str, count: int) -> int:
        """NLE of a stage that is over: training may have ended before its last step, and IO-SMC²
        has counted its own.
        """
        if self.config.method == "iosmc":
            return int(self.folder.read_json(f"{stage}.json")["nle"])  # type: ignore[call-overload,index,arg-type]
        return restarts_cost(self.config, self.task, stage, self._steps(stage, count))

    def _steps(self, stage: str, count: int) -> list[int]:
        """The steps that each restart of a stage has taken."""
        halved = self._halved(stage, count)
        return halved["steps"] if halved else [self._last_steps().get(stage, 0)] * count

    def _survivors(self, stage: str, count: int) -> list[int]:
        """The numbers of those that were not stopped early."""
        halved = self._halved(stage, count)
        return halved["survivors"] if halved else list(range(count))

    def _halved(self, stage: str, count: int) -> dict[str, list[int]]:
        """What a stage has written of its restarts; nothing where all were trained to the end."""
        if len(rungs(self.config.policy_training, count)) == 1:
            return {}
        return self.folder.read_json(f"{stage}.json")  # type: ignore[return-value]

    def _stopped(self) -> dict[str, Any]:
        """How many restarts were stopped at which step, where any were to be."""
        if not self.config.policy_training.halvings or self.config.method in UNTRAINED:
            return {}
        found = {}
        for stage, count in groups(self.config):
            going = self._survivors(stage, count)
            early = Counter(n for i, n in enumerate(self._steps(stage, count)) if i not in going)
            found[stage] = {str(step): early[step] for step in sorted(early)}
        return {"restarts_stopped": found}

    def keep(self, repeat: int, best: Any) -> Policy:
        """Save the chosen policy, and the score or posterior that was made for it alone."""
        marks = {"task": fingerprint(self.task), "policy": self.config.policy}
        special = marks | {"specialised": "to the policy it was trained with"}
        if isinstance(best, Pair):
            path = self.folder.path / JOINT_SCORE.format(repeat)
            save_leaves(
                path,
                eqx.filter(best.score, eqx.is_array),
                special | {"kind": self.config.score.kind},
            )
        elif isinstance(best, PosteriorAndPolicy):
            path = self.folder.path / JOINT_POSTERIOR.format(repeat)
            save_leaves(
                path, eqx.filter(best.posterior, eqx.is_array), special | {"kind": "density"}
            )
        chosen: Policy = best if isinstance(best, Policy) else best.policy
        save_leaves(
            self.folder.path / f"policy-{repeat}.safetensors",
            eqx.filter(chosen, eqx.is_array),
            marks,
        )
        return chosen

    def _best(self, repeat: int, candidates: Mapping[int, Any]) -> Any:
        """Of the restarts that are left, by their numbers among all of the repeat."""
        count, best = self.config.policies, min(candidates)
        if count == 1:
            return candidates[best]
        lower = [math.nan] * count
        if len(candidates) > 1:
            self.progress.begin(f"choose-{repeat}", len(candidates), 0)
            for done, (number, candidate) in enumerate(candidates.items(), 1):
                policy = candidate if isinstance(candidate, Policy) else candidate.policy
                lower[number] = self._gain(f"choose-{repeat}", policy)
                best = max(candidates, key=lambda number: np.nan_to_num(lower[number], nan=-np.inf))
                self.progress.update(done, f"best {lower[best]:.2f} nats")
            self.progress.end(f"policy {best + 1} of {count} is the best, {lower[best]:.2f} nats")
        self.folder.write_json_atomic(f"choice-{repeat}.json", {"lower": lower, "best": best})
        return candidates[best]

    def bounds(self, stage: str, policy: Policy) -> dict[str, Any]:
        """Bounds of the reported size, on draws of their own; from their file if they were computed
        before.
        """
        sizes = self.config.evaluation
        cost = policy_bounds_nle(self.task, self.config.density, sizes.outer, sizes.inner)
        self.evaluation.charge(stage, cost)
        if (self.folder.path / f"{stage}.json").exists():
            kept: dict[str, Any] = self.folder.read_json(f"{stage}.json")  # type: ignore[assignment]
            return {name: math.nan if value is None else value for name, value in kept.items()}
        self.progress.begin(stage, 0, 0)
        begun = time.monotonic()
        found = policy_bounds(
            self.task,
            policy,
            self.config.density,
            outer=sizes.outer,
            inner=sizes.inner,
            on_group=lambda done, total: self.progress.update(done, "", total),
            key=named(self.key, stage),
        )
        self._spend(stage, time.monotonic() - begun)
        values = {name: getattr(found, name) for name in BOUND_FIELDS} | self._cost(
            stage, policy, sizes.outer
        )
        self.folder.write_json_atomic(f"{stage}.json", values)
        self.progress.end(str(found))
        return values

    def references(self, learned: Any) -> dict[str, Any]:
        """The same bounds for designs that do not look at the data: random, and static ones trained
        by the same method.
        """
        path, method = self.folder.path / "static.safetensors", self.config.method
        if method == "random":
            return {}
        sampler, words = reference_sampler(self.task)
        random = {
            "random": self.bounds("bounds-random", RandomDesigns(sampler)) | {"designs": words}
        }
        if is_user_task(self.config.task):
            spaced = Static.from_designs(spaced_designs(self.task), self.task.designs)
            words = "designs spread evenly over their range"
            random |= {"spaced": self.bounds("bounds-spaced", spaced) | {"designs": words}}
        if method in ("static", "myopic"):
            return random
        if path.exists():
            best = load_policy(path, "static", self.task)
        else:
            train = (
                self.stage_2.with_posterior if method == "jointvarpost" else self.stage_2.policies
            )
            found = member(
                train("static", "static", learned, 1, _static(self.config.policy_training)), 0
            )
            best = found if isinstance(found, Policy) else found.policy
            save_leaves(
                path,
                eqx.filter(best, eqx.is_array),
                {"task": fingerprint(self.task), "policy": "static"},
            )
        return random | {
            "static": self.bounds("bounds-static", best)
            | {"designs": f"static designs trained by {_of_static(method)}"}
        }

    def record(self, bounds: list[dict[str, Any]], references: dict[str, Any]) -> dict[str, Any]:
        """What `train --json` answers."""
        lowers = [b["lower"] for b in bounds]
        first = bounds[int(np.argmax(lowers))] if len(bounds) == 1 else _mean(bounds)
        spread = (
            {"lower_se_repeats": float(np.std(lowers, ddof=1) / len(lowers) ** 0.5)}
            if len(bounds) > 1
            else {}
        )
        seconds = self._all_seconds()
        return {
            "run": self.folder.path.name,
            "task": self.config.task,
            "method": self.config.method,
            "preset": self.config.preset,
            "policy": self.config.policy,
            "policies": self.config.policies,
            "seed": self.config.seed,
            **{
                name: first[name]
                for name in (*BOUND_FIELDS, *(n for n in COST_FIELDS if n in first))
            },
            **spread,
            **about(self.task),
            "nle": self.ledger.spent,
            **self._mlmc(),
            "nle_stages": self.ledger.totals,
            "nle_evaluation": self.evaluation.spent,
            **self._stopped(),
            "seconds": seconds | {"total": round(sum(seconds.values()), 1)},
            "references": references,
        }

    def _reach(self, policy: Policy) -> dict[str, Any]:
        """Which designs of the policy its score was not trained for; of the others nothing was
        trained, or on those designs.
        """
        if self.config.method != "score" or self.config.score.kind == "laplace":
            return {}
        if not (self.folder.path / REACH).exists():
            found = coverage(
                self.task,
                self.sampler,
                policy,
                outer=256,
                pool=512,
                key=named(self.key, "coverage"),
            )
            self.folder.write_json_atomic(
                REACH, {"outside_by_step": [float(x) for x in found.outside]}
            )
        steps: Any = self.folder.read_json(REACH)["outside_by_step"]  # type: ignore[index,call-overload]
        return {"coverage": {"outside": sum(steps) / len(steps), "outside_by_step": steps}}

    def _mlmc(self) -> dict[str, Any]:
        """Beside what MLMC has spent: what the same steps cost on average, and what the paper's
        padded code evaluates.
        """
        if self.config.method != "mlmc":
            return {}
        training = self.config.policy_training
        batches = sum(sum(self._steps(stage, count)) for stage, count in groups(self.config))
        sizes: dict[str, Any] = {"base": training.base, "cap": training.levels, "tau": training.tau}
        expected = expected_nle(self.task, batch=training.batch, **sizes)
        return {
            "nle_expected": round(batches * expected),
            "nle_padded": batches * padded_nle(self.task, batch=training.batch, **sizes),
        }

    def _cost(self, stage: str, policy: Policy, outer: int) -> dict[str, float]:
        """What the designs cost, in their own unit and in nats; nothing if they cost nothing."""
        if self.task.cost is None:
            return {}
        found = expected_cost(self.task, policy, outer=outer, key=named(self.key, stage))
        return {"cost": found.mean, "cost_se": found.se, "cost_nats": found.nats}

    def _gain(self, stage: str, policy: Policy) -> float:
        """What to choose a policy by, on draws of its own, the same for all: their differences are
        far surer than they are.
        """
        sizes, training, key = (
            self.config.evaluation,
            self.config.policy_training,
            named(self.key, stage),
        )
        if training.monitor == "importance":
            how: dict[str, Any] = {
                "outer": sizes.select_outer,
                "inner": training.monitor_inner,
                "key": key,
            }
            return estimated_gain(self.task, policy, kind="importance", **how)
        how = {"outer": sizes.select_outer, "inner": sizes.select_inner, "key": key}
        found = policy_bounds(self.task, policy, self.config.density, **how)
        return found.lower - self._cost(stage, policy, sizes.select_outer).get("cost_nats", 0.0)

    def _spend(self, stage: str, seconds: float) -> None:
        self.folder.append_metrics({"stage": stage, "step": 1, "seconds": seconds})

    def _all_seconds(self) -> dict[str, float]:
        """Seconds of every stage: the last record of each says how long it has taken so far, over
        all interruptions.
        """
        return {str(r["stage"]): round(float(r["seconds"]), 2) for r in self.folder.read_metrics()}  # type: ignore[arg-type]

    def _last_steps(self) -> dict[str, int]:
        """The last step of every stage."""
        return {str(r["stage"]): int(r["step"]) for r in self.folder.read_metrics()}  # type: ignore[call-overload]


def _of_static(method: str) -> str:
    return {"iosmc": "PCE", "jointscore": "the score that the policies started with"}.get(
        method, "the same method"
    )


def _static(config: PolicyConfig) -> PolicyConfig:
    return dataclasses.replace(
        config,
        steps=min(STATIC_STEPS, 2 * config.steps),
        batch=max(config.batch, min(STATIC_BATCH, 4 * config.batch)),
        learning_rate=STATIC_RATE,
        schedule="cosine",
        limit=0.0,
        halvings=0,
    )


def _mean(bounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Bounds averaged over repeats; standard errors as of a mean of independent ones."""
    n = len(bounds)
    names = [*BOUND_FIELDS, *(name for name in COST_FIELDS if name in bounds[0])]
    mean = {name: sum(b[name] for b in bounds) / n for name in names}
    errors = [name for name in ("lower_se", "upper_se", "cost_se") if name in names]
    return mean | {name: sum(b[name] ** 2 for b in bounds) ** 0.5 / n for name in errors}
