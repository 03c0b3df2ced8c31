"""Bounds of the expected information gain of a policy, by the names that the command line uses.

A bound is an object (`bounds/base.py`): `make_bound("smc")(task, policy, key=key)`. `tight_bounds`
takes the one that is tight for the task.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from jaxtyping import PRNGKeyArray

from scorebed.bounds.base import Bound, Bounds, OnGroup, silent
from scorebed.bounds.contrastive import Contrastive
from scorebed.bounds.importance import Importance, LaplaceImportance
from scorebed.bounds.posterior import PosteriorBound
from scorebed.bounds.smc import SMC
from scorebed.errors import NoDensityError
from scorebed.policies.base import Policy
from scorebed.registry import Registry
from scorebed.tasks.base import Task


class Tight(Bound):
    """The bound that is tight for a task (`Task.tight_bound`), with that bound's sizes."""

    name: ClassVar[str] = "tight"

    def __call__(
        self,
        task: Task,
        policy: Policy,
        *,
        outer: int | None = None,
        inner: int | None = None,
        on_group: OnGroup = silent,
        key: PRNGKeyArray,
    ) -> Bounds:
        chosen = self.for_task(task)
        return chosen(task, policy, outer=outer, inner=inner, on_group=on_group, key=key)

    def supports(self, task: Task) -> None:
        self.for_task(task).supports(task)

    def nle(self, task: Task, outer: int, inner: int) -> int | None:
        return self.for_task(task).nle(task, outer, inner)

    def for_task(self, task: Task) -> Bound:
        if task.tight_bound is None:
            raise NoDensityError(
                f"tight bounds of {type(task).__name__}, got a model without a density, expected "
                "one with `log_prob`. Fix: use the posterior bound, which needs none."
            )
        return make_bound(task.tight_bound)


SomeBound = TypeVar("SomeBound", bound=Bound)

BOUNDS: Registry[Bound] = Registry(
    "bound",
    {
        bound.name: bound
        for bound in (
            Contrastive(),
            Importance(),
            SMC(),
            Tight(),
            LaplaceImportance(),
            PosteriorBound(),
        )
    },
    made_by="a subclass of Bound",
    accepts=lambda bound: isinstance(bound, Bound),
)


def make_bound(name: str) -> Bound:
    """A bound by its name, with its usual sizes."""
    return BOUNDS.find(name)


def register_bound(name: str) -> Callable[[type[SomeBound]], type[SomeBound]]:
    """A bound of your own for `--bound NAME`: `@register_bound("mine")` above a subclass of
    `Bound` that can be made without arguments.
    """
    add = BOUNDS.register(name)

    def register(kind: Any) -> Any:  # anything else is refused with a sentence
        add(kind() if isinstance(kind, type) and issubclass(kind, Bound) else kind)
        return kind

    return register


def usual_bound(task: Task, *, posterior: PosteriorBound | None = None) -> Bound:
    """The bound that a run reports: contrastive, or a trained posterior's where the model has no
    density.
    """
    return Contrastive() if task.has_density else posterior or PosteriorBound()


def tight_bounds(
    task: Task,
    policy: Policy,
    *,
    outer: int | None = None,
    inner: int | None = None,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> Bounds:
    """Bounds by the method that is tight for a task: importance sampling, SMC for many exchangeable
    blocks, contrastive draws where some parameters are a nuisance.

    Arguments:
        task: what is measured; it needs a density.
        policy: whose designs are judged.
        outer: trajectories; by default as many as the chosen bound takes.
        inner: draws or particles of each; by default as many as the chosen bound takes.
        on_group: called with the groups done and the groups in all.
        key: of all draws.

    Returns:
        `Bounds` in nats, with standard errors and the likelihood evaluations spent.

    Raises:
        NoDensityError: the task has no density. Use `bounds.posterior.PosteriorBound`.
    """
    return Tight()(task, policy, outer=outer, inner=inner, on_group=on_group, key=key)
