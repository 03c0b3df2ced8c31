"""Bounds of the expected information gain of a policy, by the names that the command line uses.

A bound is an object (`bounds/base.py`): `make_bound("smc")(task, policy, key=key)`. `tight_bounds`
takes the one that is tight for the task.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from jaxtyping import PRNGKeyArray

from scorebed.bounds.base import Bound, Bounds, OnGroup, silent
from scorebed.bounds.contrastive import Contrastive
from scorebed.bounds.grouped import Grouped
from scorebed.errors import NoDensityError
from scorebed.policies.base import Policy
from scorebed.registry import Late, Registry
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

    def grouped(
        self, task: Task, *, outer: int | None = None, inner: int | None = None
    ) -> Grouped | None:
        return self.for_task(task).grouped(task, outer=outer, inner=inner)

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
        "contrastive": Contrastive(),
        "importance": Late("scorebed.bounds.importance", "Importance", made=True),
        "smc": Late("scorebed.bounds.smc", "SMC", made=True),
        "tight": Tight(),
        "importance-laplace": Late("scorebed.bounds.importance", "LaplaceImportance", made=True),
        "posterior": Late("scorebed.bounds.posterior", "PosteriorBound", made=True),
    },
    made_by="a subclass of Bound",
    accepts=lambda bound: isinstance(bound, Bound),
    about="""The bounds of the EIG, by the names that `--bound` takes. `register_bound` adds one.

    Example:
        >>> sorted(sb.BOUNDS)[:2]
        ['contrastive', 'importance']
    """,
)


def make_bound(name: str) -> Bound:
    """A bound by its name, with its usual sizes.

    Arguments:
        name: a name in `BOUNDS`.

    Returns:
        A `Bound`, which is called with a task and a policy.

    Raises:
        UnknownNameError: if there is no bound of that name.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> bound = sb.make_bound("contrastive")
        >>> bound(task, policy, outer=32, inner=100, key=jr.key(1)).outer
        32
    """
    return BOUNDS.find(name)


def register_bound(name: str) -> Callable[[type[SomeBound]], type[SomeBound]]:
    """Add a bound of your own, for `--bound NAME` and in Python.

    Arguments:
        name: lower-case letters, digits and hyphens; not a built-in name.

    Returns:
        A decorator for a subclass of `Bound` that can be made without arguments. It returns the
        class.

    Raises:
        InvalidValueError: if the name is malformed or built in, or the class is not a `Bound`.

    Example:
        >>> @sb.register_bound("my-bound")
        ... class MyBound(sb.Bound):
        ...     def __call__(self, task, policy, *, outer=32, inner=100, on_group=None, key):
        ...         return sb.eig_bounds(task, policy, outer=2 * outer, inner=inner, key=key)
        >>> sb.make_bound("my-bound")(task, policy, outer=16, key=jr.key(1)).outer
        32
    """
    add = BOUNDS.register(name)

    def register(kind: Any) -> Any:  # anything else is refused with a sentence
        add(kind() if isinstance(kind, type) and issubclass(kind, Bound) else kind)
        return kind

    return register


def usual_bound(task: Task, *, posterior: Bound | None = None) -> Bound:
    """The bound that a run reports: contrastive, or a trained posterior's where the model has no
    density.
    """
    return Contrastive() if task.has_density else posterior or make_bound("posterior")


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
        task: the experiment; it needs a density.
        policy: the policy whose designs are judged.
        outer: number of trajectories; the chosen bound's usual number if left out.
        inner: draws or particles per trajectory; the chosen bound's usual number if left out.
        on_group: called with the number of groups done and of all groups.
        key: the random key.

    Returns:
        `Bounds` in nats, with standard errors and the likelihood evaluations spent.

    Raises:
        NoDensityError: if the task has no density; `make_bound("posterior")` needs none.
        InvalidValueError: if `outer` or `inner` is too small.

    Example:
        >>> two = sb.make_task("location-finding", sources=2, horizon=2)
        >>> designs = sb.make_policy("static", two, key=jr.key(0))
        >>> found = sb.tight_bounds(two, designs, outer=4, inner=64, key=jr.key(1))
        >>> found.outer, found.inner
        (4, 64)
    """
    return Tight()(task, policy, outer=outer, inner=inner, on_group=on_group, key=key)
