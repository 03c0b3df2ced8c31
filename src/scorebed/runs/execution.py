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

import jax.random as jr
import numpy as np

from scorebed.bounds import BOUNDS, tight_bounds
from scorebed.bounds.base import Bounds
from scorebed.bounds.design_cost import expected_cost
from scorebed.bounds.gain import Gain
from scorebed.bounds.groups import GroupSums, paired, pooled
from scorebed.check.far import find_overflow
from scorebed.diagnostics import coverage
from scorebed.keys import named
from scorebed.methods.base import Job, Method
from scorebed.policies import GREEDY, POLICIES, RANDOM, STATIC, make_policy
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.presets import spends_all
from scorebed.runs.artifacts import load_like, load_policy, save
from scorebed.runs.checkpoint import halvings
from scorebed.runs.config import RunConfig
from scorebed.runs.evaluation import CONTRASTIVE, about, bound_nle, loose, reported_bound
from scorebed.runs.folder import RunFolder
from scorebed.runs.ledgers import RunLedgers
from scorebed.runs.record import (
    BOUND_FIELDS,
    BoundsRecord,
    PairedRecord,
    Record,
    RepeatRecord,
    across_repeats,
    mean_bounds,
)
from scorebed.runs.stage import Progress, StageCheckpointer
from scorebed.runs.stage_files import PolicyChoice, StageFiles, read_choice, write_choice
from scorebed.runs.user_parts import is_from_file
from scorebed.runs.watch import (
    ALONE_SHARE,
    LEAST_OUTER,
    STATIC_SHARE,
    UPFRONT_SHARE,
    Watch,
    affordable_sizes,
)
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
PACE_OUTER, PACE_INNER = 32, 1023  # of the bound that tells how fast bounds are
PACE_SHARE = 0.2  # of the time left that one such bound may take to be worth another
MOST_ROUNDS = 64  # of bounds, however much time there is
COVERAGE, RECORD = "coverage.json", "record.json"
BOUNDS_0 = "bounds-0"  # of the first repeat's policy: what others are compared with
GROUPS = "groups"


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

    def run(self) -> Record:
        """Carry out whatever is left to do; write and give the record."""
        self.folder.write_env()
        learned = [self.upfront(index) for index in range(self.job.upfronts(self.parts))]
        chosen = [self.choose(r, self._of_repeat(learned, r)) for r in range(self.config.repeats)]
        others = self.references(learned[0]) if self.config.evaluation.references else {}
        self._decide_sizes(chosen[0], len(chosen) + len(others))
        bounds = [self.bounds(f"bounds-{r}", policy) for r, policy in enumerate(chosen)]
        references = {name: self.compared(name, *other) for name, other in others.items()}
        better = self.task.tight_bound not in (None, CONTRASTIVE)
        tighter = self.config.evaluation.tight_outer and better and any(map(loose, bounds))
        if self.watch is not None and len(chosen) == 1 and not tighter:
            policies = {BOUNDS_0: chosen[0]} | {
                f"bounds-{name}": policy for name, (policy, _) in others.items()
            }
            bounds, references = self._with_more_rounds(policies, bounds[0], references)
        together: dict[str, PairedRecord] | None = None
        if tighter:
            begun = time.monotonic()
            tight = [self._tight(f"tight-{r}", policy) for r, policy in enumerate(chosen)]
            seconds = time.monotonic() - begun
            # Half as long for each of the others: most programs are compiled by now.
            if self.watch is None or 0.5 * seconds * len(others) < self.watch.left:
                together = self.in_same_experiments(tight[0], others)
            kind = str(self.task.tight_bound)
            bounds = [each.with_tight(t, kind) for each, t in zip(bounds, tight, strict=True)]
        record = self.record(bounds, references, together, self._coverage(chosen[0]))
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
            return self.method.untrained(self.job)
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

    def bounds(self, stage: str, policy: Policy, draws: str | None = None) -> BoundsRecord:
        """Bounds of the reported size; from their file if they were computed before. `draws` names
        the bounds whose draws they share, to be compared with; left out, draws are their own.
        """
        bound = reported_bound(self.config, self.task)
        outer, inner = self._sizes
        self.ledgers.evaluation.charge(stage, bound_nle(bound, self.task, policy, outer, inner))
        if (self.folder.path / f"{stage}.json").exists():
            kept: Any = self.folder.read_json(f"{stage}.json")
            return BoundsRecord.read(kept)
        self.progress.begin(stage, 0, 0)
        begun = time.monotonic()
        found = bound(
            self.task,
            policy,
            outer=outer,
            inner=inner,
            on_group=lambda done, total: self.progress.update(done, "", total),
            key=named(self.key, draws or stage),
        )
        self._note_seconds(stage, time.monotonic() - begun)
        values = BoundsRecord.of(found, **self._cost(stage, policy, outer))
        groups = {} if found.groups is None else {GROUPS: found.groups.values()}
        self.folder.write_json_atomic(f"{stage}.json", values.values() | groups)
        self.progress.end(str(found))
        return values

    def in_same_experiments(
        self, policy: Bounds, compared: Mapping[str, tuple[Policy, str]]
    ) -> dict[str, PairedRecord]:
        """The policy of the first repeat against others in the same experiments: the references,
        and where the time is not limited itself untrained and the untrained policy that looks
        ahead.
        """
        others: dict[str, tuple[Policy, str]] = {}
        if self.trains and self.watch is None:
            fresh = self.job.make_policy(self.task, key=named(self.key, "untrained"))
            others["untrained"] = fresh, "the same policy before training"
            if self.config.evaluation.greedy:
                ahead = make_policy(GREEDY, self.task, key=named(self.key, GREEDY))
                others["greedy"] = ahead, "looks one step ahead, untrained"
        return {
            name: PairedRecord.of(policy, self._tight(f"tight-{name}", other), words)
            for name, (other, words) in {**others, **compared}.items()
        }

    def _tight(self, stage: str, policy: Policy) -> Bounds:
        """Tight bounds on the draws that all designs of a run are judged by; from their file if
        they were computed before.
        """
        file = f"{stage}.json"
        if not (self.folder.path / file).exists():
            self.progress.begin(stage, 0, 0)
            begun = time.monotonic()
            fresh = tight_bounds(
                self.task,
                policy,
                outer=self.config.evaluation.tight_outer,
                on_group=lambda done, total: self.progress.update(done, "", total),
                key=named(self.key, "tight"),
            )
            assert fresh.groups is not None  # tight bounds keep every trajectory
            self._note_seconds(stage, time.monotonic() - begun)
            kept = {f.name: getattr(fresh, f.name) for f in dataclasses.fields(fresh)}
            self.folder.write_json_atomic(file, kept | {GROUPS: fresh.groups.values()})
            self.progress.end(str(fresh))
        values: Any = self.folder.read_json(file)
        # JSON has null for a number that is not finite.
        found: dict[str, Any] = {k: math.nan if v is None else v for k, v in values.items()}
        tight = Bounds(**found | {GROUPS: GroupSums.read(values[GROUPS])})
        self.ledgers.evaluation.charge(stage, tight.nle)
        return tight

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

    def compared(self, name: str, policy: Policy, designs: str) -> BoundsRecord:
        """Bounds of designs to compare with, on the draws of the first repeat's policy, and by how
        much that policy is ahead of them; `designs` says what they are.
        """
        stage = f"bounds-{name}"
        found = dataclasses.replace(self.bounds(stage, policy, BOUNDS_0), designs=designs)
        ours, theirs = self._groups(BOUNDS_0), self._groups(stage)
        if ours is None or theirs is None or ours.sizes != theirs.sizes:
            return found  # of a bound, or a version, that kept no groups
        return found.compared(paired(ours, theirs))

    def record(
        self,
        bounds: Sequence[BoundsRecord],
        references: Mapping[str, BoundsRecord],
        together: Mapping[str, PairedRecord] | None,
        covered: Mapping[str, Any] | None,
    ) -> Record:
        """What the run came to."""
        several, per_repeat = len(bounds) > 1, self.ledgers.per_repeat
        repeats = [
            RepeatRecord(bounds=each, nle=nle, **self._chosen(r))
            for r, (each, nle) in enumerate(zip(bounds, per_repeat, strict=True))
        ]
        seconds = self._all_seconds()
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
            trained=None if self.trains or self.method.has_own_policy else False,
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
            references=references,
            dropped=self._dropped() or None,
            ended_by_clock=(self.watch.ends if self.watch is not None else None) or None,
            paired=together,
            coverage=covered,
        )

    @property
    def trains(self) -> bool:
        """Whether the policy is trained at all."""
        return self.method.train(self.job, None, "policy-0-0", 1) is not None

    @property
    def _sizes(self) -> tuple[int, int]:
        """Outer and inner sizes of the reported bounds, of one round of them under a watch."""
        sizes = self.config.evaluation
        decided = None if self.watch is None else self.watch.sizes
        return decided or (sizes.outer, sizes.inner)

    def _decide_sizes(self, policy: Policy, kinds: int) -> None:
        """Under a watch: sizes of which one round fits into the time for evaluation, by the pace of
        a small bound.
        """
        bound, sizes = reported_bound(self.config, self.task), self.config.evaluation
        if self.watch is None or self.watch.sizes is not None or not self.task.has_density:
            return
        small: dict[str, Any] = {"outer": PACE_OUTER, "inner": PACE_INNER}
        designs, left = policy.design_nle / self.task.horizon, self.watch.left
        if designs > sizes.inner:  # then that is what a round costs: small ones, and many
            self.watch.decide_sizes(min(sizes.outer, LEAST_OUTER), sizes.inner)
            return
        for _ in range(2):  # the first one compiles
            begun = time.monotonic()
            bound(self.task, policy, **small, key=named(self.key, "pace"))
            took = time.monotonic() - begun
            if took > PACE_SHARE * left:
                break  # a slow estimate of the pace: there may be further rounds
        rate = PACE_OUTER * (PACE_INNER + 1 + designs) / max(took, 1e-3)
        seconds = max(self.watch.left, 0.1 * self.watch.seconds) / (2 * kinds)
        # References choose their designs for nothing.
        costs = {"designs": designs / kinds, "rate": rate, "seconds": seconds}
        self.watch.decide_sizes(*affordable_sizes(sizes.outer, sizes.inner, **costs))

    def _with_more_rounds(
        self,
        policies: Mapping[str, Policy],
        ours: BoundsRecord,
        references: Mapping[str, BoundsRecord],
    ) -> tuple[list[BoundsRecord], dict[str, BoundsRecord]]:
        """Bounds of a policy and of its references from as many rounds as the time allows, all on
        common draws, round by round.
        """
        groups = {stage: self._groups(stage) for stage in policies}
        if any(found is None for found in groups.values()):
            return [ours], dict(references)
        seconds = self._all_seconds()
        took = sum(seconds.get(stage, 0.0) for stage in policies)
        rounds: list[dict[str, Bounds]] = []
        while len(rounds) < MOST_ROUNDS:
            number = len(rounds) + 1
            known = (self.folder.path / f"round-{number}.json").exists()
            if not known and (self.watch is None or self.watch.left < took):
                break
            begun = time.monotonic()
            rounds.append(self._round(number, policies))
            took = took if known else 1.2 * (time.monotonic() - begun)
        records = {BOUNDS_0: ours} | {f"bounds-{name}": each for name, each in references.items()}
        pools = {}
        for stage, record in records.items():
            parts = [each[stage] for each in rounds]
            first = groups[stage]
            assert first is not None  # for the type checker
            pools[stage] = pooled([first, *(p.groups for p in parts if p.groups is not None)])
            records[stage] = record.with_groups(pools[stage], [p.saturated for p in parts])
        found = {}
        for name in references:
            stage = f"bounds-{name}"
            same = pools[stage].sizes == pools[BOUNDS_0].sizes
            record = records[stage]
            found[name] = record.compared(paired(pools[BOUNDS_0], pools[stage])) if same else record
        return [records[BOUNDS_0]], found

    def _round(self, number: int, policies: Mapping[str, Policy]) -> dict[str, Bounds]:
        """One more round of bounds of all designs, from its file if it was computed before."""
        name, (outer, inner) = f"round-{number}", self._sizes
        bound = reported_bound(self.config, self.task)
        each = [bound_nle(bound, self.task, policy, outer, inner) for policy in policies.values()]
        self.ledgers.evaluation.charge(name, sum(each))
        if not (self.folder.path / f"{name}.json").exists():
            self.progress.begin(name, len(policies), 0)
            begun, found = time.monotonic(), {}
            for done, (stage, policy) in enumerate(policies.items(), start=1):
                key = named(self.key, BOUNDS_0, number)
                found[stage] = bound(self.task, policy, outer=outer, inner=inner, key=key)
                self.progress.update(done, stage)
            values = {
                stage: BoundsRecord.of(each).values()
                | ({GROUPS: each.groups.values()} if each.groups is not None else {})
                for stage, each in found.items()
            }
            self._note_seconds(name, time.monotonic() - begun)
            self.folder.write_json_atomic(f"{name}.json", values)
            self.progress.end(f"{outer:,} more experiments of each kind of designs")
            return found
        kept: Any = self.folder.read_json(f"{name}.json")
        return {
            stage: Bounds(
                **{field: getattr(BoundsRecord.read(each), field) for field in BOUND_FIELDS},
                nle=0,
                groups=GroupSums.read(each[GROUPS]),
            )
            for stage, each in kept.items()
        }

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
            watched = self._carried_out(stage, 1.0 if self.trains else ALONE_SHARE)
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

    def _cost(self, stage: str, policy: Policy, outer: int) -> dict[str, float]:
        """What the designs cost, in their own unit and in nats; nothing if they cost nothing."""
        if self.task.cost is None:
            return {}
        found = expected_cost(self.task, policy, outer=outer, key=named(self.key, stage))
        return {"cost": found.mean, "cost_se": found.se, "cost_nats": found.nats}

    def _dropped(self) -> dict[str, int]:
        """Trajectories that stages left out because they were not finite."""
        found: Counter[str] = Counter()
        metrics: Any = self.folder.read_metrics()
        for line in metrics:
            found[str(line["stage"])] += int(np.sum(line.get(DROPPED, 0)))
        return {stage: count for stage, count in found.items() if count}

    def _groups(self, stage: str) -> GroupSums | None:
        """What a paired difference needs of bounds that were computed; None where nothing was
        kept.
        """
        kept: Any = self.folder.read_json(f"{stage}.json")
        return GroupSums.read(kept[GROUPS]) if GROUPS in kept else None

    def _note_seconds(self, stage: str, seconds: float) -> None:
        self.folder.truncate_metrics(stage, 0)  # of a life that ended before its bounds were kept
        self.folder.append_metrics({"stage": stage, "step": 1, "seconds": seconds})

    def _all_seconds(self) -> dict[str, float]:
        """Seconds of every stage: the last record of each says how long it has taken so far, over
        all interruptions.
        """
        metrics: Any = self.folder.read_metrics()
        return {str(each["stage"]): round(float(each["seconds"]), 2) for each in metrics}


def _share(whole: float, index: int, count: int) -> float:
    """The share of what is left that number `index` of `count` equal parts of `whole` is, once the
    parts before it are gone.
    """
    each = whole / count
    return each / max(1 - index * each, each)
