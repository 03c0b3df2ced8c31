"""What the experiments of a run's policies tell, and those of what they are compared with.

Bounds of the reported size come first, on draws of each repeat's own; the references share the
draws of the first. Where these bounds are loose there are tight ones too, of all designs in the
same experiments. Every bound has a file of its own: what was computed before a run was stopped is
read and not computed again. Under a watch one round of bounds fits into the time for them, and
further rounds follow while there is time.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scorebed.bounds import tight_bounds
from scorebed.bounds.base import Bounds
from scorebed.bounds.design_cost import expected_cost
from scorebed.bounds.groups import GroupSums, paired, pooled
from scorebed.keys import named
from scorebed.methods.base import Job
from scorebed.nle import Ledger
from scorebed.policies import GREEDY, make_policy
from scorebed.policies.base import Policy
from scorebed.policies.constrained import obedient
from scorebed.policies.static import Static
from scorebed.runs.config import RunConfig
from scorebed.runs.evaluation import CONTRASTIVE, bound_nle, loose, reported_bound
from scorebed.runs.folder import RunFolder
from scorebed.runs.record import BOUND_FIELDS, BoundsRecord, PairedRecord
from scorebed.runs.stage import Progress
from scorebed.runs.watch import LEAST_OUTER, Watch, affordable_sizes

PACE_OUTER, PACE_INNER = 32, 1023  # of the bound that tells how fast bounds are
PACE_SHARE = 0.2  # of the time left that one such bound may take to be worth another
MOST_ROUNDS = 64  # of bounds, however much time there is
BOUNDS_0 = "bounds-0"  # of the first repeat's policy: what others are compared with
GROUPS, GREED = "groups", "greedy"
MYOPIC_OUTER = 64  # experiments of the myopic designer, each of whose designs is a search

Compared = Mapping[str, tuple[Policy, str]]
"""Other designs by name, each with what they are in words."""


class BoundsOfRun(NamedTuple):
    """What the bounds of a run came to."""

    repeats: list[BoundsRecord]
    """Of the policy of each repeat."""
    references: dict[str, BoundsRecord]
    """Of the designs that it is compared with."""
    paired: dict[str, PairedRecord] | None
    """Tight ones in the same experiments; None where there are none."""


class RunBounds:
    """Bounds of a run's policies, kept in its folder and charged to a ledger."""

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        job: Job,
        *,
        ledger: Ledger,
        progress: Progress,
        watch: Watch | None,
    ):
        self.folder, self.config, self.ledger = folder, config, ledger
        self.progress, self.watch = progress, watch
        self.job, self.method = job, config.trained_by
        self.task, self.key = job.task, job.key

    def carry_out(
        self,
        chosen: Sequence[Policy],
        others: Compared,
    ) -> BoundsOfRun:
        """All that the configuration asks for: bounds of the policy of each repeat and of others.
        Where there are tight ones and the time is not limited, the first policy is compared with
        itself untrained and with the untrained policy that looks ahead as well.
        """
        self._decide_sizes(chosen[0], len(chosen) + len(others))
        bounds = [self.reported(f"bounds-{r}", policy) for r, policy in enumerate(chosen)]
        references = {name: self._reference(name, *other) for name, other in others.items()}
        better = self.task.tight_bound not in (None, CONTRASTIVE)
        tighter = self.config.evaluation.tight_outer and better and any(map(loose, bounds))
        if self.watch is not None and len(chosen) == 1 and not tighter:
            policies = {BOUNDS_0: chosen[0]} | {
                f"bounds-{name}": policy for name, (policy, _) in others.items()
            }
            bounds, references = self._with_more_rounds(policies, bounds[0], references)
        if not tighter:
            return BoundsOfRun(bounds, references, None)
        begun = time.monotonic()
        tight = [self._tight(f"tight-{r}", policy) for r, policy in enumerate(chosen)]
        seconds = time.monotonic() - begun
        together: dict[str, PairedRecord] | None = None
        # Half as long for each of the others: most programs are compiled by now.
        if self.watch is None or 0.5 * seconds * len(others) < self.watch.left:
            together = {
                name: PairedRecord.of(tight[0], self._tight(f"tight-{name}", other), words)
                for name, (other, words) in {**self._before_training(), **others}.items()
            }
        kind = str(self.task.tight_bound)
        found = [each.with_tight(t, kind) for each, t in zip(bounds, tight, strict=True)]
        return BoundsOfRun(found, references, together)

    def reported(self, stage: str, policy: Policy, draws: str | None = None) -> BoundsRecord:
        """Bounds of the reported size; from their file if they were computed before. `draws` names
        the bounds whose draws they share, to be compared with; left out, draws are their own.
        """
        bound = reported_bound(self.config, self.task)
        outer, inner = self._sizes
        self.ledger.charge(stage, bound_nle(bound, self.task, policy, outer, inner))
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
        self.folder.note_seconds(stage, time.monotonic() - begun)
        values = BoundsRecord.of(found, **self._cost(stage, policy, outer))
        groups = {} if found.groups is None else {GROUPS: found.groups.values()}
        self.folder.write_json_atomic(f"{stage}.json", values.values() | groups)
        self.progress.end(str(found))
        return values

    def ahead_of(
        self, policy: Policy, *, compared: bool = True
    ) -> tuple[Bounds, dict[str, PairedRecord]]:
        """Tight bounds of the first repeat's policy, and of what it is to be ahead of in the same
        experiments: greed, and what the policy itself was before training or without feedback. A
        policy that is greedy, or its own start, stands for it.
        """
        ours, found = self._tight("tight-0", policy), {}
        others = self._to_be_ahead_of(policy) if compared else {}
        for name, (other, words, most) in others.items():
            found[name] = PairedRecord.of(ours, self._tight(f"tight-{name}", other, most), words)
        return ours, found

    def start(self, policy: Policy) -> dict[str, tuple[Policy, str]]:
        """What a policy that was not trained starts from, where that is a sequence of designs."""
        xis = policy.without_feedback
        if xis is None:
            return {}
        designs = Static.from_designs(xis, self.task.designs)
        return {"start": (obedient(self.task, designs), "the policy's own start, without feedback")}

    def _to_be_ahead_of(self, policy: Policy) -> dict[str, tuple[Policy, str, int | None]]:
        """Policies, what they are in words, and in how many experiments; None for all."""
        from scorebed.baselines.myopic import Myopic  # which few runs need

        compared = {**self.start(policy), **self._fresh()}
        found: dict[str, tuple[Policy, str, int | None]] = {
            name: (*each, None) for name, each in compared.items()
        }
        if self.config.policy != GREEDY:
            if self.task.exchangeable_steps:
                found[GREED] = (*self._greedy(), None)
            else:  # whose steps depend on each other
                myopic = Myopic(self.task, key=named(self.key, GREEDY))
                found[GREED] = myopic, "the myopic designer", MYOPIC_OUTER
        return found

    def _before_training(self) -> Compared:
        """The policy as it was before training, and the untrained policy that looks ahead; nothing
        where nothing is trained, or the time is limited.
        """
        fresh = self._fresh() if self.watch is None else {}
        ahead = fresh and self.config.evaluation.greedy
        return {**fresh, GREED: self._greedy()} if ahead else fresh

    def _fresh(self) -> Compared:
        if not self.method.trains(self.job):
            return {}
        fresh = self.job.make_policy(self.task, key=named(self.key, "untrained"))
        return {"untrained": (fresh, "the same policy before training")}

    def _greedy(self) -> tuple[Policy, str]:
        ahead = make_policy(GREEDY, self.task, key=named(self.key, GREEDY))
        return ahead, "looks one step ahead, untrained"

    def _tight(self, stage: str, policy: Policy, most: int | None = None) -> Bounds:
        """Tight bounds on the draws that all designs of a run are judged by, on the first `most` of
        them if that is given; from their file if they were computed before.
        """
        outer = self.config.evaluation.tight_outer
        file = f"{stage}.json"
        if not (self.folder.path / file).exists():
            self.progress.begin(stage, 0, 0)
            begun = time.monotonic()
            fresh = tight_bounds(
                self.task,
                policy,
                outer=outer if most is None else min(outer, most),
                on_group=lambda done, total: self.progress.update(done, "", total),
                key=named(self.key, "tight"),
            )
            assert fresh.groups is not None  # tight bounds keep every trajectory
            self.folder.note_seconds(stage, time.monotonic() - begun)
            kept = {f.name: getattr(fresh, f.name) for f in dataclasses.fields(fresh)}
            self.folder.write_json_atomic(file, kept | {GROUPS: fresh.groups.values()})
            self.progress.end(str(fresh))
        values: Any = self.folder.read_json(file)
        # JSON has null for a number that is not finite.
        found: dict[str, Any] = {k: math.nan if v is None else v for k, v in values.items()}
        tight = Bounds(**found | {GROUPS: GroupSums.read(values[GROUPS])})
        self.ledger.charge(stage, tight.nle)
        return tight

    def _reference(self, name: str, policy: Policy, designs: str) -> BoundsRecord:
        """Bounds of designs to compare with, on the draws of the first repeat's policy, and by how
        much that policy is ahead of them; `designs` says what they are.
        """
        stage = f"bounds-{name}"
        found = dataclasses.replace(self.reported(stage, policy, BOUNDS_0), designs=designs)
        ours, theirs = self._groups(BOUNDS_0), self._groups(stage)
        if ours is None or theirs is None or ours.sizes != theirs.sizes:
            return found  # of a bound, or a version, that kept no groups
        return found.compared(paired(ours, theirs))

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
        seconds = self.folder.seconds_by_stage()
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
        self.ledger.charge(name, sum(each))
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
            self.folder.note_seconds(name, time.monotonic() - begun)
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

    def _cost(self, stage: str, policy: Policy, outer: int) -> dict[str, float]:
        """What the designs cost, in their own unit and in nats; nothing if they cost nothing."""
        if self.task.cost is None:
            return {}
        found = expected_cost(self.task, policy, outer=outer, key=named(self.key, stage))
        return {"cost": found.mean, "cost_se": found.se, "cost_nats": found.nats}

    def _groups(self, stage: str) -> GroupSums | None:
        """What a paired difference needs of bounds that were computed; None where nothing was
        kept.
        """
        kept: Any = self.folder.read_json(f"{stage}.json")
        return GroupSums.read(kept[GROUPS]) if GROUPS in kept else None
