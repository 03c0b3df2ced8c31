"""The record of a run, which `train --json` prints: what it found, spent, and how long it took."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from scorebed.bounds.base import Bounds
from scorebed.bounds.groups import Advantage, GroupSums, paired
from scorebed.errors import require

BOUND_FIELDS = (
    "lower",
    "lower_se",
    "upper",
    "upper_se",
    "outer",
    "inner",
    "ceiling",
    "saturated",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundsRecord:
    """Bounds of one kind of designs, in nats, and what the designs cost if they cost anything.

    Where the reported bounds are loose there are tight ones as well, which then lead."""

    lower: float
    lower_se: float
    upper: float
    upper_se: float
    outer: int
    inner: int
    ceiling: float
    saturated: float
    cost: float | None = None
    cost_se: float | None = None
    cost_nats: float | None = None
    tight_lower: float | None = None
    tight_lower_se: float | None = None
    tight_upper: float | None = None
    tight_upper_se: float | None = None
    tight_outer: int | None = None
    """Experiments of the tight bounds; all designs of a run are judged on the same ones."""
    tight_bound: str | None = None
    """Their kind."""
    designs: str | None = None
    """What the designs are, in words; of references."""
    advantage: float | None = None
    """Of references: by how much the (first repeat's) policy is ahead, lower bound minus lower
    bound, on common draws.
    """
    advantage_se: float | None = None
    advantage_at_least: float | None = None
    """The policy's lower bound minus the upper bound of these designs, on common draws: in
    expectation no more than the difference of their EIGs.
    """
    advantage_at_least_se: float | None = None

    def with_tight(self, bounds: Bounds, kind: str) -> "BoundsRecord":
        """These bounds and tight ones."""
        sides = {
            f"tight_{name}": getattr(bounds, name)
            for name in ("lower", "lower_se", "upper", "upper_se", "outer")
        }
        return dataclasses.replace(self, tight_bound=kind, **sides)

    @property
    def leading(self) -> tuple[float, float]:
        """The lower and the upper bound to give first: the tight ones where there are any."""
        if self.tight_lower is None or self.tight_upper is None:
            return self.lower, self.upper
        return self.tight_lower, self.tight_upper

    @classmethod
    def of(cls, bounds: Bounds, **cost: Any) -> "BoundsRecord":
        """What is recorded of bounds."""
        return cls(**{name: getattr(bounds, name) for name in BOUND_FIELDS}, **cost)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "BoundsRecord":
        """Back from JSON, in which a number that is not finite is null."""
        found = {f.name: values[f.name] for f in dataclasses.fields(cls) if f.name in values}
        whole: dict[str, Any] = {k: np.nan if v is None else v for k, v in found.items()}
        return cls(**whole)

    def values(self) -> dict[str, Any]:
        """For JSON: what there is."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    def with_groups(self, groups: GroupSums, saturated: Sequence[float]) -> "BoundsRecord":
        """The bounds of several rounds: of all their groups, and of further rounds the share of
        saturated trajectories.
        """
        (lower, lower_se), (upper, upper_se) = groups.mean_lower(), groups.mean_upper()
        return dataclasses.replace(
            self,
            lower=min(lower, self.ceiling),
            lower_se=lower_se,
            upper=upper,
            upper_se=upper_se,
            outer=sum(groups.sizes),
            saturated=float(np.mean([self.saturated, *saturated])),
        )

    def compared(self, advantage: Advantage) -> "BoundsRecord":
        """With the advantage of the policy over these designs."""
        (difference, error), (least, least_error) = advantage
        found: dict[str, Any] = {"advantage": difference, "advantage_se": error}
        if np.isfinite(least):  # without a density there is no upper bound
            found |= {"advantage_at_least": least, "advantage_at_least_se": least_error}
        return dataclasses.replace(self, **found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedRecord:
    """Tight bounds of other designs in the experiments in which the policy has its own, and by how
    much the policy is ahead of them.
    """

    lower: float
    lower_se: float
    upper: float
    upper_se: float
    outer: int
    advantage: float
    """The mean of the policy's lower bound less that of these designs."""
    advantage_se: float
    """Its standard error, from the differences of single experiments."""
    designs: str
    """What the designs are, in words."""

    @classmethod
    def of(cls, policy: Bounds, other: Bounds, designs: str) -> "PairedRecord":
        """From tight bounds on the same draws, of which the others may have only the first."""
        assert policy.groups is not None  # tight bounds keep every trajectory
        assert other.groups is not None
        ours = policy.groups.first(len(other.groups.sizes))
        ahead = paired(ours, other.groups).difference
        names = ("lower", "lower_se", "upper", "upper_se", "outer")
        return cls(
            **{name: getattr(other, name) for name in names},
            advantage=ahead.mean,
            advantage_se=ahead.se,
            designs=designs,
        )


def mean_bounds(each: Sequence[BoundsRecord]) -> BoundsRecord:
    """Bounds averaged over repeats; standard errors as of a mean of independent ones."""
    n, first = len(each), each[0]
    if n == 1:
        return first
    found: dict[str, Any] = {}
    for name in first.values():
        values = [getattr(bounds, name) for bounds in each]
        if name.endswith("_se"):
            found[name] = sum(value**2 for value in values) ** 0.5 / n
        else:  # sizes and words are those of all
            found[name] = values[0] if len(set(values)) == 1 else sum(values) / n
    return BoundsRecord(**found)


def across_repeats(values: Sequence[float]) -> float | None:
    """The standard error of the mean of one value for each repeat; None for a single one."""
    n = len(values)
    return float(np.std(values, ddof=1) / n**0.5) if n > 1 else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepeatRecord:
    """One of several repeats: the bounds of its policy, which share no draws with the others'."""

    bounds: BoundsRecord
    nle: int
    """Likelihood evaluations of its training, in full: also of what it shares with others."""
    policy_number: int | None = None
    """The number of the chosen policy, from 0, where there were several."""
    trained_with: str | None = None
    """What was learned upfront for it, where that was not one for all: the stem of its file."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "RepeatRecord":
        """Back from JSON."""
        names = {field.name for field in dataclasses.fields(cls)} - {"bounds"}
        found = {name: values[name] for name in names if name in values}
        return cls(bounds=BoundsRecord.read(values), **found)

    def values(self) -> dict[str, Any]:
        """For JSON: flat, what there is."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        bounds = plain.pop("bounds")
        return bounds.values() | {k: v for k, v in plain.items() if v is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A finished run."""

    run: str
    task: str
    method: str
    preset: str
    policy: str
    policies: int
    seed: int
    bounds: BoundsRecord
    """Of the chosen policy; their mean where there are repeats."""
    lower_se_repeats: float | None = None
    """The standard error of the lower bound across repeats."""
    upper_se_repeats: float | None = None
    """The same of the upper bound."""
    repeats: Sequence[RepeatRecord] | None = None
    """Every repeat by itself, where there are several."""
    chosen: Mapping[str, Any] | None = None
    """The chosen policy and what trained it (as in `RepeatRecord`), where there is one repeat."""
    trained: bool | None = None
    """False where the policy has nothing to train; else left out."""
    bound: str
    """The kind of the bounds."""
    interest: Sequence[str] | None = None
    """The parameters that they are about, if not all."""
    nle: int
    """Likelihood evaluations of training that were really spent; what repeats share counts once."""
    nle_per_repeat: int | None = None
    """Those of the dearest repeat, what it shares with others in full; what a budget limits. Given
    where there are several repeats.
    """
    nle_stages: Mapping[str, int]
    nle_selection: int | None = None
    """Of the estimates while training and of the choice among restarts; None in old records."""
    nle_evaluation: int
    """Of the reported bounds, references included."""
    nle_references: int | None = None
    """Of training and watching static designs to compare with; None in old records."""
    by_method: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the method has to say besides."""
    restarts_stopped: Mapping[str, Any] | None = None
    """How many restarts were stopped at which step, by stage."""
    seconds: Mapping[str, float]
    references: Mapping[str, BoundsRecord]
    dropped: Mapping[str, int] | None = None
    """Trajectories that were not finite and left out of training, by stage; None without any."""
    ended_by_clock: Mapping[str, int] | None = None
    """The steps at which stages ended because of --minutes, where any did."""
    paired: Mapping[str, PairedRecord] | None = None
    """What training adds: other designs in the same experiments, where bounds are tight."""
    coverage: Mapping[str, Any] | None = None
    """Which designs of the policy its score was not trained for."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Record":
        """Back from JSON."""
        names = {field.name for field in dataclasses.fields(cls)}
        _require_complete(values, (*(names - {"bounds"}), *BOUND_FIELDS), cls)
        found = {name: values[name] for name in names if name in values}
        found["bounds"] = BoundsRecord.read(values)
        if "repeats" in values:
            found["repeats"] = [RepeatRecord.read(each) for each in values["repeats"]]
        references = values.get("references", {})
        found["references"] = {k: BoundsRecord.read(v) for k, v in references.items()}
        if "paired" in values:
            found["paired"] = {k: PairedRecord(**v) for k, v in values["paired"].items()}
        own = {field.name for field in dataclasses.fields(BoundsRecord)}
        found["by_method"] = {k: v for k, v in values.items() if k not in names | own}
        return cls(**found)

    @property
    def budget_used(self) -> int:
        """What a budget for the same training would have to be: NLE of the dearest repeat. A record
        of an earlier version has it in its stages.
        """
        if self.nle_per_repeat is not None:
            return self.nle_per_repeat
        other_repeats = re.compile("policy-[1-9]")
        return sum(n for stage, n in self.nle_stages.items() if not other_repeats.match(stage))

    def values(self) -> dict[str, Any]:
        """For JSON: flat, with the bounds among the rest."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        bounds, by_method = plain.pop("bounds"), plain.pop("by_method")
        if self.repeats is not None:
            plain["repeats"] = [each.values() for each in self.repeats]
        plain["references"] = {name: each.values() for name, each in self.references.items()}
        if self.paired is not None:
            plain["paired"] = {k: dataclasses.asdict(each) for k, each in self.paired.items()}
        return {k: v for k, v in plain.items() if v is not None} | bounds.values() | by_method


def _require_complete(values: Mapping[str, Any], names: Collection[str], cls: type) -> None:
    """Refuse a record that lacks a field without a default."""
    optional = {
        field.name
        for field in dataclasses.fields(cls)
        if (field.default, field.default_factory) != (dataclasses.MISSING,) * 2
    }
    missing = sorted(set(names) - set(values) - optional)
    require(
        not missing,
        "the record of a run",
        got=f"one without {', '.join(missing)}",
        expected="a record.json that scorebed wrote",
        fix="delete it and go on with `scorebed resume`.",
    )
