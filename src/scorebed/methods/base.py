"""What a method is: how policies are trained, what is learned before them, and what both cost.

A method is an object whose fields are its settings; a run asks it for stages and knows none of
them. Most methods train a batch of policies by a gradient (`GradientMethod`): they say what the
gradient is and what a step costs. Those of two stages learn something upfront that serves every
policy (`upfront`); those that train nothing have a policy as it is (`untrained`).

Decision 025 says why `stages` is two methods: the second stage is made with what came of the first.
"""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.random as jr
from jaxtyping import PRNGKeyArray

from scorebed.errors import InvalidValueError
from scorebed.methods.sections import PolicyTraining
from scorebed.policies.base import Policy
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance
from scorebed.training.policy import fresh_policies
from scorebed.training.stage import Stage

SomeMethod = TypeVar("SomeMethod", bound="Method")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What a method is to do: P policies of one architecture for a task, and that so many times."""

    task: Task
    sampler: DesignSampler
    """The designs that are learned from before there is a policy."""
    make_policy: Callable[..., Policy]
    """An untrained policy: `make_policy(task, key=key)`."""
    policies: int = 1
    """P, of which the best is kept."""
    repeats: int = 1
    key: PRNGKeyArray
    """The root of all random numbers."""
    fresh_upfront: bool = False
    """Whether every repeat learns anew what is learned upfront, or all share it."""
    budget: int = 0
    """Likelihood evaluations that a repeat may spend; 0 for no limit."""
    taken_over: bool = False
    """Whether what is learned upfront comes from another run."""
    capped: bool = True
    """Whether a budget buys no more steps of a network than the settings have."""

    make_batch: Callable[..., Policy] = fresh_policies
    """The untrained policies of a stage: `make_batch(make_policy, task, count, key=key)`."""

    @functools.cached_property
    def _shapes(self) -> Policy:
        """A policy without its numbers: traits need none."""
        policy: Policy = eqx.filter_eval_shape(
            lambda key: self.make_policy(self.task, key=key), jr.key(0)
        )
        return policy

    @property
    def design_nle(self) -> int:
        """Likelihood evaluations of the designs of one experiment, by a policy that evaluates the
        model.
        """
        return self._shapes.design_nle

    @property
    def search_nle(self) -> int:
        """Likelihood evaluations of the search by which a policy that is not trained is made; 0 if
        there is none.
        """
        return 0 if self.trainable else self._shapes.search_nle

    @property
    def trainable(self) -> bool:
        """Whether the policy has parameters to train."""
        return self._shapes.trainable

    def groups(self, parts: int, repeat: int = 0) -> list[tuple[str, int]]:
        """The stages in which the policies of a repeat are trained, and how many in each: P shared
        out among `parts`.
        """
        counts = [self.policies // parts + (s < self.policies % parts) for s in range(parts)]
        return [(f"policy-{repeat}-{s}", n) for s, n in enumerate(counts)]

    def all_groups(self, parts: int) -> list[tuple[str, int]]:
        """The same of every repeat."""
        return [group for r in range(self.repeats) for group in self.groups(parts, r)]

    def part_of(self, number: int, parts: int) -> int:
        """The part, among `parts`, that policy `number` of a repeat was trained in."""
        counts = [count for _, count in self.groups(parts)]
        return bisect.bisect_right(list(itertools.accumulate(counts)), number)

    def upfronts(self, parts: int) -> int:
        """How often something is learned upfront in all."""
        return parts * (self.repeats if self.fresh_upfront else 1)

    def upfront_index(self, repeat: int, part: int, parts: int) -> int:
        """The number of what was learned upfront for a part of a repeat."""
        return part + (repeat * parts if self.fresh_upfront else 0)


class Method(eqx.Module):
    """How policies are trained. Its fields are its settings; a `Job` says for which task.

    Inherit from `EstimatorMethod` for an estimator of your own, and from this class for anything
    else. `METHODS` holds the built-in ones.

    Attributes:
        needs_density: whether the likelihood of the model is evaluated.
        serves_nuisance: whether it serves tasks with nuisance parameters.
        serves_discrete: whether it serves tasks with finitely many outcomes.
        needs_discrete: whether outcomes must be finitely many.
        serves_names: whether it serves designs with names to choose among.
        compared_with_random: whether a run bounds random designs too.
        has_own_policy: whether it is tied to one policy.
        designs_in_words: what its designs are, for a report.
        upfront_stem: the name of the files of what is learned upfront; empty if nothing is.

    Methods:
        supports: refuse a task that it cannot serve.
        upfront: the stage that learns what serves every policy, if there is one.
        train: the stage that trains policies, if there is one.
        untrained: the policy of a method that trains none.
        untrained_nle: likelihood evaluations that making it takes.
        within: the same method with the largest sizes that a budget allows.
        nle: likelihood evaluations of one repeat of a run, at most.

    Example:
        >>> class Untouched(sb.Method):
        ...     def untrained(self, job):
        ...         return job.make_policy(job.task, key=job.key)
        >>> Untouched().supports(sb.make_task("linear-gaussian"))
    """

    needs_density: ClassVar[bool] = True
    """Whether the likelihood of the model is evaluated."""
    serves_nuisance: ClassVar[bool] = False
    """Whether it serves tasks with nuisance parameters."""
    serves_discrete: ClassVar[bool] = False
    """Whether it serves tasks with finitely many outcomes, which have no gradient."""
    needs_discrete: ClassVar[bool] = False
    """Whether outcomes must be finitely many."""
    serves_names: ClassVar[bool] = False
    """Whether it serves designs with names, which have no gradient."""
    compared_with_random: ClassVar[bool] = True
    """Whether a run bounds random designs too."""
    has_own_policy: ClassVar[bool] = False
    """Whether it is tied to one policy: no other can be trained by it."""
    designs_in_words: ClassVar[str] = "adaptive designs of the trained policy"
    """What its designs are, for a report."""
    upfront_stem: ClassVar[str] = ""
    """The name of the files of what is learned upfront; empty if nothing is."""

    @property
    def policy_settings(self) -> PolicyTraining | None:
        """The settings of its training of policies; None without a section [policy_training]."""
        return None

    @property
    def learns_from_sampler(self) -> bool:
        """Whether it rests on something learned from the sampler's designs alone, so that a policy
        may leave what was seen.
        """
        return False

    @property
    def score_kind(self) -> str | None:
        """The name of the kind of score that it learns; None if it learns none."""
        return None

    def score_file(self, repeat: int, index: int) -> str:
        """The stem of the file of the score that trained the chosen policy of a repeat last, where
        number `index` of what is learned upfront trained it first; empty if there is no score.
        """
        del repeat, index
        return ""

    def supports(self, task: Task) -> None:
        """Refuse a task that the method cannot serve, with a sentence."""
        name = type(task).__name__
        if self.needs_density and not task.has_density:
            got = f"{name}, a model without a density"
            raise _not_served(
                self, got, [each for each in _built_in() if not each[1].needs_density]
            )
        if has_nuisance(task) and not self.serves_nuisance:
            got = f"{name}, which has nuisance parameters"
            raise _not_served(self, got, [each for each in _built_in() if each[1].serves_nuisance])
        if task.discrete_outcomes and not self.serves_discrete:
            got = f"{name}, whose outcomes are finitely many"
            raise _not_served(self, got, [each for each in _built_in() if each[1].serves_discrete])
        if self.needs_discrete and not task.discrete_outcomes:
            got = f"{name}, whose outcomes are not finitely many"
            raise _not_served(
                self, got, [each for each in _built_in() if not each[1].needs_discrete]
            )
        if task.designs.named and not self.serves_names:
            got = f"{name}, whose designs have names"
            raise _not_served(self, got, [each for each in _built_in() if each[1].serves_names])

    def supports_policy(self, policy: Policy) -> None:
        """Refuse a policy that the method cannot train, with a sentence."""
        del policy

    def parts(self, job: Job) -> int:
        """Into how many stages the policies of a repeat are shared out."""
        del job
        return 1

    def upfront(self, job: Job, index: int) -> Stage | None:
        """The training of what serves every policy, number `index` (`Job.upfront_index`); None if
        there is none.
        """
        del job, index
        return None

    def upfront_nle(self, job: Job) -> int:
        """Likelihood evaluations of one `upfront`; what another run learned is free."""
        stage = None if job.taken_over else self.upfront(job, 0)
        return 0 if stage is None else stage.nle_at_most()

    def upfront_values(self, table: str) -> dict[str, Any]:
        """The settings that belong to what is learned upfront, for a run that takes it over;
        `table` is that of the method's own settings.
        """
        del table
        return {}

    def upfront_like(self, job: Job) -> Any:
        """What `upfront` results in, with shapes for arrays: the template of its file."""
        del job
        raise NotImplementedError

    def train(self, job: Job, learned: Any, name: str, count: int) -> Stage | None:
        """The training of `count` policies, with what was learned upfront if anything was; None if
        nothing is trained.
        """
        del job, learned, name, count
        return None

    def untrained(self, job: Job) -> Policy:
        """The policy of a method that trains none."""
        del job
        raise InvalidValueError(
            f"the method {type(self).__name__}",
            got="no stage of training and no policy",
            expected="one of them",
            fix="write `train`, or `untrained`.",
        )

    def trains(self, job: Job) -> bool:
        """Whether it trains policies at all."""
        return self.train(job, None, "policy-0-0", 1) is not None

    def untrained_nle(self, job: Job) -> int:
        """Likelihood evaluations that `untrained` takes; if there are any, a run keeps what it
        gives.
        """
        del job
        return 0

    def policy_of(self, trained: Any) -> Policy:
        """The policy in what was trained: itself, unless something was trained with it."""
        policy: Policy = trained
        return policy

    def kept_beside(self, trained: Any) -> Mapping[str, Any]:
        """What else is saved of the best, by the stem of its file."""
        del trained
        return {}

    def static_reference(self) -> "tuple[Method, str] | None":
        """The method by which static designs are trained to compare with, and how in words; None
        if they are not.
        """
        return None

    def within(self: SomeMethod, budget: int, job: Job) -> SomeMethod:
        """The same method with the largest sizes that a budget allows; refused if its smallest
        version costs more.
        """
        require_affordable(budget, self.nle(job))
        return self

    def with_steps(self: SomeMethod, job: Job, upfront: int | None, policies: int) -> SomeMethod:
        """The same method with as many steps of each restart, and of what is learned upfront, as a
        given time allows.
        """
        del job, upfront, policies
        return self

    def alone(self: SomeMethod) -> SomeMethod:
        """The same method with one of what it learns upfront, where it would learn several."""
        return self

    def timed(self: SomeMethod, steps: int, every: int) -> SomeMethod:
        """The same method in a few steps, to time them."""
        del steps, every
        return self

    def record(self, job: Job, steps: Sequence[int]) -> dict[str, Any]:
        """What a run's record says besides, given the steps of every restart."""
        del job, steps
        return {}

    def nle(self, job: Job) -> int:
        """Likelihood evaluations of one repeat of a run, at most: what is learned upfront in full,
        shared or not, and the policies; of the dearest repeat, where costs are drawn.
        """
        parts = self.parts(job)
        upfront = parts * self.upfront_nle(job) + self.untrained_nle(job)
        return upfront + max(
            sum(self._policies_nle(job, *group) for group in job.groups(parts, repeat))
            for repeat in range(job.repeats)
        )

    def _policies_nle(self, job: Job, name: str, count: int) -> int:
        stage = self.train(job, None, name, count) if count else None
        return 0 if stage is None else stage.nle_at_most()


def _built_in() -> list[tuple[str, type[Method]]]:
    from scorebed.methods import METHODS  # all of them inherit from what is here

    return [(name, each) for name, each in METHODS.items() if name in METHODS.built_in]


def _not_served(
    method: Method, got: str, able: Sequence[tuple[str, type[Method]]]
) -> InvalidValueError:
    """A method, by the name that it has on the command line, and those that would serve."""
    names = [name for name, each in _built_in() if each is type(method)]
    return InvalidValueError(
        f"the method {names[0] if names else type(method).__name__}",
        got=got,
        expected=f"one of {', '.join(name for name, _ in able)}",
        fix="choose one of them by --method.",
    )


def require_affordable(budget: int, least: int) -> None:
    """Refuse a budget that does not pay for the least that a run can do."""
    if budget < least:
        raise InvalidValueError(
            "--budget",
            got=f"{budget:,} likelihood evaluations",
            expected=f"at least {least:,} for the other sizes of this run",
            fix="raise it, or lower policy_training.steps or policy_training.batch.",
        )
