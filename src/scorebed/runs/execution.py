"""A training run on disk: what is learned upfront → policies → choice → bounds, each a resting
place.

The method says what the stages are; nothing here knows which method it is. Every stage has a key,
checkpoints and a final file of its own, so that a run that was stopped anywhere goes on there: a
stage whose file exists is loaded, one with checkpoints continues, one with neither starts. Keys
follow names and step numbers, so that the result does not depend on how often a run was stopped.
"""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np

from scorebed.bounds import BOUNDS
from scorebed.bounds.gain import Gain
from scorebed.check.far import find_overflow
from scorebed.diagnostics import coverage
from scorebed.keys import named
from scorebed.methods.base import Job, Method
from scorebed.policies import POLICIES, RANDOM, STATIC, make_policy
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.presets import spends_all
from scorebed.runs.artifacts import load_like, load_policy, save
from scorebed.runs.checkpoint import halvings
from scorebed.runs.config import RunConfig
from scorebed.runs.evaluation import about, reported_bound
from scorebed.runs.folder import RunFolder
from scorebed.runs.ledgers import RunLedgers
from scorebed.runs.record import (
    Record,
    RepeatRecord,
    across_repeats,
    mean_bounds,
)
from scorebed.runs.run_bounds import BoundsOfRun, RunBounds
from scorebed.runs.stage import Progress, StageCheckpointer
from scorebed.runs.stage_files import PolicyChoice, StageFiles, read_choice, write_choice
from scorebed.runs.user_parts import is_from_file
from scorebed.runs.watch import ALONE_SHARE, STATIC_SHARE, UPFRONT_SHARE, Watch
from scorebed.samplers import make_sampler
from scorebed.samplers.paper import reference_sampler
from scorebed.samplers.spaced import spaced_designs
from scorebed.tasks.base import Task
from scorebed.training.dropped import DROPPED
from scorebed.training.fit import NonFiniteError, member
from scorebed.training.policy import best_policy, static_starts
from scorebed.training.stage import Stage
from scorebed.training.watched import Watched

STATIC_STARTS = 3  # of static designs to compare with, one of them evenly spread
COVERAGE, RECORD = "coverage.json", "record.json"


def job_for(config: RunConfig, task: Task) -> Job:
    """What the method of a run is to do."""
    return Job(
        task=task,
        sampler=make_sampler(config.sampler, task),
        make_policy=lambda task, *, key: make_policy(config.policy, task, key=key),
        policies=config.policies,
        repeats=config.repeats,
        key=jr.key(config.seed),
        fresh_upfront=config.fresh_scores,
        budget=config.budget,
        taken_over=bool(config.score_run),
        capped=not spends_all(config.preset),
    )


class Execution:
    """One run being carried out: its folder, what it has spent, and how long its stages took.

    `carry` carries a stage out: in this process alone, if left out. With a `watch` the time of the
    whole run is limited.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        task: Task,
        *,
        progress: Progress,
        carry: Callable[[StageCheckpointer], Watched] = StageCheckpointer.carry_out,
        watch: Watch | None = None,
    ):
        self.folder, self.config, self.progress, self.carry = folder, config, progress, carry
        self.watch = watch
        self.job, self.method = job_for(config, task), config.trained_by
        self.task, self.key = task, self.job.key
        self.parts, self.stages = self.method.parts(self.job), StageFiles(folder)
        self.ledgers = RunLedgers(config.budget, config.repeats)
        self.bounds = RunBounds(
            folder,
            config,
            self.job,
            ledger=self.ledgers.evaluation,
            progress=progress,
            watch=watch,
        )

    def run(self) -> Record:
        """Carry out whatever is left to do; write and give the record."""
        self.folder.write_env()
        learned = [self.upfront(index) for index in range(self.job.upfronts(self.parts))]
        chosen = [self.choose(r, self._of_repeat(learned, r)) for r in range(self.config.repeats)]
        compared = self.config.evaluation.references
        others = self.references(learned[0]) | self.bounds.start(chosen[0]) if compared else {}
        bounds = self.bounds.carry_out(chosen, others)
        record = self.record(bounds, self._coverage(chosen[0]))
        self.folder.write_json_atomic(RECORD, record.values())
        return record

    def upfront(self, index: int) -> Any:
        """What is learned before any policy, number `index`: trained or loaded; None if nothing
        is.
        """
        stage = self.method.upfront(self.job, index)
        if stage is None:
            return None
        path = self.folder.path / f"{stage.name}.safetensors"
        if cost := self.method.upfront_nle(self.job):
            name = "weights" if self.job.taken_over else stage.name
            self.ledgers.train(
                name, cost, [index // self.parts] if self.job.fresh_upfront else None
            )
        if path.exists():
            learned = load_like(path, self.method.upfront_like(self.job), self.task)
        else:
            marks = halvings(stage.steps)
            count = self.job.upfronts(self.parts)
            share = _share(UPFRONT_SHARE, index, count)
            found = stage.start() if stage.steps == 0 else self._carried_out(stage, share, marks)
            learned = stage.result(found)
            save(path, learned, self.task)
        ended = None if self.watch is None else self.watch.ended(stage.name)
        if cost and ended is not None:  # charged for all of its steps
            unspent = stage.nle_at_most() - stage.nle_of([ended])
            self.ledgers.settle_shared(stage.name, cost - unspent)
        return learned

    def choose(self, repeat: int, learned: Sequence[Any]) -> Policy:
        """P policies shared out among what was learned, and the best of them by a bound on draws of
        its own.
        """
        groups = self.job.groups(self.parts, repeat)
        stages = [
            self.method.train(self.job, each, name, count) if count else None
            for each, (name, count) in zip(learned, groups, strict=True)
        ]
        if all(stage is None for stage in stages):
            return self._untrained(repeat)
        trained = [stage for stage in stages if stage is not None]
        path = self.folder.path / f"policy-{repeat}.safetensors"
        for each in trained:
            self.ledgers.train(each.name, each.nle_at_most(), [repeat])
        if path.exists():
            chosen = load_policy(path, self.job.make_policy, self.task)
        else:
            candidates: dict[int, Any] = {}
            first = 0
            for stage, (_, count) in zip(stages, groups, strict=True):
                if stage is not None:
                    watched = self._carried_out(stage, self._policy_share(stage.name))
                    batch, numbers = stage.result(watched), stage.survivors(watched)
                    self.stages.write(stage, watched, numbers)
                    candidates |= {first + n: member(batch, i) for i, n in enumerate(numbers)}
                first += count
            chosen = self.keep(repeat, self._best(repeat, candidates))
        for stage, (_, count) in zip(stages, groups, strict=True):
            if stage is not None:
                self.ledgers.settle(stage.name, self.stages.spent(stage, count), repeat)
                watching = stage.monitor_nle(self.stages.steps(stage.name, count))
                self.ledgers.selection.charge(stage.name, watching + self._ended_nle(stage))
        self._charge_choice(repeat)
        return chosen

    def _untrained(self, repeat: int) -> Policy:
        """The policy of a method that trains none. What a search for it has found is kept, since a
        search takes longer than reading a file.
        """
        cost = self.method.untrained_nle(self.job)
        if not cost:
            return self.method.untrained(self.job)
        stage, path = f"search-{repeat}", self.folder.path / f"policy-{repeat}.safetensors"
        self.ledgers.train(stage, cost, [repeat])
        if path.exists():
            return load_policy(path, self.job.make_policy, self.task)
        self.progress.begin(stage, 0, 0)
        begun = time.monotonic()
        found = jax.block_until_ready(self.method.untrained(self.job))
        seconds = time.monotonic() - begun
        save(path, found, self.task, policy=self.config.policy)
        self.folder.note_seconds(stage, seconds)
        self.progress.end(f"found in {seconds:.0f} s")
        return found

    def keep(self, repeat: int, best: Any) -> Policy:
        """Save the chosen policy, and what was made for it alone."""
        special = {"policy": self.config.policy, "specialised": "to the policy it was trained with"}
        for stem, module in self.method.kept_beside(best).items():
            save(self.folder.path / f"{stem}-{repeat}.safetensors", module, self.task, **special)
        policy, path = (
            self.method.policy_of(best),
            self.folder.path / f"policy-{repeat}.safetensors",
        )
        save(path, policy, self.task, policy=self.config.policy)
        return policy

    def references(self, learned: Any) -> dict[str, tuple[Policy, str]]:
        """Designs that do not look at the data, to compare with, and what they are in words: random
        ones, evenly spread ones for a task of the user's, and static ones trained by the same
        method.
        """
        if not self.method.compared_with_random:
            return {}
        sampler, words = reference_sampler(self.task)
        found: dict[str, tuple[Policy, str]] = {RANDOM: (RandomDesigns(sampler), words)}
        if is_from_file(self.config.task):
            spaced = Static.from_designs(spaced_designs(self.task), self.task.designs)
            found["spaced"] = (spaced, "designs spread evenly over their range")
        reference = self.method.static_reference()
        if reference is not None:
            method, by = reference
            words = f"static designs trained by {by}"
            found[STATIC] = (self._static(method, learned), words)
        return found

    def record(self, found: BoundsOfRun, covered: Mapping[str, Any] | None) -> Record:
        """What the run came to."""
        bounds = found.repeats
        several, per_repeat = len(bounds) > 1, self.ledgers.per_repeat
        repeats = [
            RepeatRecord(bounds=each, nle=nle, **self._chosen(r))
            for r, (each, nle) in enumerate(zip(bounds, per_repeat, strict=True))
        ]
        seconds = self.folder.seconds_by_stage()
        return Record(
            run=self.folder.path.name,
            task=self.config.task,
            method=self.config.method,
            preset=self.config.preset,
            policy=self.config.policy,
            policies=self.config.policies,
            seed=self.config.seed,
            bounds=mean_bounds(bounds),
            lower_se_repeats=across_repeats([each.lower for each in bounds]),
            upper_se_repeats=across_repeats([each.upper for each in bounds]),
            repeats=repeats if several else None,
            chosen=None if several else self._chosen(0) or None,
            trained=None if self.method.trains(self.job) or self.method.has_own_policy else False,
            **about(self.task),
            nle=self.ledgers.training.spent,
            nle_per_repeat=max(per_repeat) if several else None,
            nle_stages=self.ledgers.training.totals,
            nle_selection=self.ledgers.selection.spent,
            nle_evaluation=self.ledgers.evaluation.spent,
            nle_references=self.ledgers.references.spent,
            by_method=self.method.record(self.job, self._all_steps()),
            restarts_stopped=self._stopped(),
            seconds=seconds | {"total": round(sum(seconds.values()), 1)},
            references=found.references,
            dropped=self._dropped() or None,
            ended_by_clock=(self.watch.ends if self.watch is not None else None) or None,
            paired=found.paired,
            coverage=covered,
        )

    def _policy_share(self, name: str) -> float:
        """The share of the time left that a stage of policies takes."""
        names = [stage for stage, count in self.job.all_groups(self.parts) if count]
        compared = self.config.evaluation.references and self.method.static_reference() is not None
        whole = 1 - STATIC_SHARE if compared else 1.0
        return _share(whole, names.index(name) if name in names else 0, len(names))

    def _ended_nle(self, stage: Stage) -> int:
        """Of the estimate that a stage ended by the clock is judged by."""
        ended = self.watch is not None and self.watch.ended(stage.name) is not None
        return stage.ended_nle if ended else 0

    def _of_repeat(self, learned: Sequence[Any], repeat: int) -> list[Any]:
        """What was learned upfront for each part of a repeat."""
        index = [self.job.upfront_index(repeat, part, self.parts) for part in range(self.parts)]
        return [learned[number] for number in index]

    def _chosen(self, repeat: int) -> dict[str, Any]:
        """The number of the chosen policy, where there were several, and what was learned upfront
        for it, where that was not one for all.
        """
        choice = read_choice(self.folder, repeat, self.method, self.job)
        found: dict[str, Any] = {"policy_number": choice.policy} if self.job.policies > 1 else {}
        stem = self.method.upfront_stem
        if stem and self.job.upfronts(self.parts) > 1:
            found["trained_with"] = f"{stem}-{choice.upfront}"
        return found

    def _charge_choice(self, repeat: int) -> None:
        """The bounds that a repeat's restarts were chosen by; a single one needs none."""
        groups = self.job.groups(self.parts, repeat)
        left = sum(len(self.stages.survivors(name, count)) for name, count in groups if count)
        if self.job.policies > 1 and left > 1:
            stage = f"choose-{repeat}"
            each = self._gain(stage).nle(self.job.design_nle)
            self.ledgers.selection.charge(stage, left * each)

    def _carried_out(self, stage: Stage, share: float = 1.0, marks: Sequence[int] = ()) -> Any:
        timing: dict[str, Any] = {"watch": self.watch, "share": share}
        try:
            return self.carry(
                StageCheckpointer(self.folder, self.progress, stage, marks=marks, **timing)
            )
        except NonFiniteError as error:
            overflow = find_overflow(self.task, key=named(self.key, "overflow"))
            if overflow is not None:
                error.name_place(overflow.words(self.task))
            raise

    def _static(self, method: Method, learned: Any) -> Policy:
        """The best of several static designs, trained or loaded."""
        path, make = self.folder.path / f"{STATIC}.safetensors", POLICIES[STATIC]
        job = dataclasses.replace(
            self.job, make_policy=make, make_batch=static_starts, policies=STATIC_STARTS
        )
        stage = method.train(job, learned, STATIC, STATIC_STARTS)
        assert stage is not None, "a method for static designs trains them"
        choosing = f"choose-{STATIC}"
        choice = self._gain(choosing)
        if path.exists():
            policy = load_policy(path, make, self.task)
        else:
            watched = self._carried_out(stage, 1.0 if self.method.trains(self.job) else ALONE_SHARE)
            self.stages.write(stage, watched, stage.survivors(watched))
            batch = stage.result(watched)
            starts = [method.policy_of(member(batch, i)) for i in range(STATIC_STARTS)]
            policy = best_policy(
                self.task, starts, estimate=choice, key=named(self.key, choosing)
            ).policy
            save(path, policy, self.task, policy=STATIC)
        watching = stage.monitor_nle(self.stages.steps(STATIC, STATIC_STARTS))
        watching += self._ended_nle(stage)
        chosen = STATIC_STARTS * choice.nle(job.design_nle)
        spent = self.stages.spent(stage, STATIC_STARTS) + watching + chosen
        self.ledgers.references.charge(STATIC, spent)
        return policy

    def _all_steps(self) -> list[int]:
        """Of every restart of every stage of policies."""
        groups = self.job.all_groups(self.parts)
        return [n for name, count in groups if count for n in self.stages.steps(name, count)]

    def _stopped(self) -> dict[str, Any] | None:
        """How many restarts were stopped at which step, where any were to be."""
        training = self.method.policy_settings
        if training is None or not training.halvings:
            return None
        found = {}
        for name, count in self.job.all_groups(self.parts):
            going, steps = self.stages.survivors(name, count), self.stages.steps(name, count)
            early = Counter(n for i, n in enumerate(steps) if i not in going)
            found[name] = {str(step): early[step] for step in sorted(early)}
        return found

    def _best(self, repeat: int, candidates: Mapping[int, Any]) -> Any:
        """Of the restarts that are left, by their numbers among all of the repeat."""
        count, stage = self.config.policies, f"choose-{repeat}"
        if count == 1:
            return candidates[min(candidates)]
        numbers = sorted(candidates)
        lower = [math.nan] * count
        if len(candidates) > 1:
            self.progress.begin(stage, len(candidates), 0)
        found = best_policy(
            self.task,
            [self.method.policy_of(candidates[number]) for number in numbers],
            estimate=self._gain(stage),
            on_policy=lambda done, best: self.progress.update(done, f"best {best:.2f} nats"),
            key=named(self.key, stage),
        )
        best = numbers[found.number]
        for number, value in zip(numbers, found.lower, strict=True):
            lower[number] = value
        if len(candidates) > 1:
            words = f"policy {best + 1} of {count} is the best, {lower[best]:.2f} nats"
            self.progress.end(words)
        index = self.job.upfront_index(repeat, self.job.part_of(best, self.parts), self.parts)
        stem = self.method.upfront_stem
        upfront = f"{stem}-{index}" if stem else ""
        write_choice(self.folder, repeat, lower, PolicyChoice(best, index), upfront)
        return candidates[best]

    def _gain(self, stage: str) -> Gain:
        """What to choose a policy by, on draws of its own, the same for all."""
        sizes, key = self.config.evaluation, named(self.key, stage)
        training, bound = self.method.policy_settings, reported_bound(self.config, self.task)
        inner = sizes.select_inner
        # A bound that does not saturate chooses by as few draws as it watches by.
        if training is not None and training.monitor != bound.name and self.task.has_density:
            bound, inner = BOUNDS[training.monitor].monitor, training.monitor_inner
        return Gain(bound, self.task, sizes.select_outer, inner, key)

    def _coverage(self, policy: Policy) -> dict[str, Any] | None:
        """Which designs of the policy its score was not trained for; None where nothing was
        trained, or on those designs too.
        """
        if not self.method.learns_from_sampler:
            return None
        if not (self.folder.path / COVERAGE).exists():
            sampler, key = self.job.sampler, named(self.key, "coverage")
            found = coverage(self.task, sampler, policy, outer=256, pool=512, key=key)
            steps = [float(x) for x in found.outside]
            self.folder.write_json_atomic(COVERAGE, {"outside_by_step": steps})
        kept: Any = self.folder.read_json(COVERAGE)
        steps = kept["outside_by_step"]
        return {"outside": sum(steps) / len(steps), "outside_by_step": steps}

    def _dropped(self) -> dict[str, int]:
        """Trajectories that stages left out because they were not finite."""
        found: Counter[str] = Counter()
        metrics: Any = self.folder.read_metrics()
        for line in metrics:
            found[str(line["stage"])] += int(np.sum(line.get(DROPPED, 0)))
        return {stage: count for stage, count in found.items() if count}


def _share(whole: float, index: int, count: int) -> float:
    """The share of what is left that number `index` of `count` equal parts of `whole` is, once the
    parts before it are gone.
    """
    each = whole / count
    return each / max(1 - index * each, each)
