"""The policies, by the names that the command line knows."""

from collections.abc import Callable
from typing import Protocol

from jaxtyping import PRNGKeyArray

from scorebed.policies.base import Policy
from scorebed.policies.constrained import obedient
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.registry import Late, Registry
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks.base import Gaussian, Task


class PolicyConstructor(Protocol):
    """A policy for a task, with the paper's sizes."""

    def __call__(self, task: Task, *, key: PRNGKeyArray) -> Policy: ...


def _static(task: Task, *, key: PRNGKeyArray) -> Policy:
    return Static.random(task.horizon, task.designs, key=key)


def _random(task: Task, *, key: PRNGKeyArray) -> Policy:
    del key
    return RandomDesigns(paper_sampler(task))


def _ahead(task: Task, *, key: PRNGKeyArray) -> Policy:
    if isinstance(task, Gaussian) and not task.designs.listed:
        from scorebed.policies.lookahead import Lookahead

        return Lookahead(task, key=key)
    from scorebed.policies.lookahead_everywhere import LookaheadEverywhere

    return LookaheadEverywhere(task, key=key)


# Designs that every run is compared with.
STATIC, RANDOM = "static", "random"
# What greed reaches untrained, on tasks that it serves.
GREEDY = "lookahead"

POLICIES: Registry[PolicyConstructor] = Registry(
    "policy",
    {
        "dad": Late("scorebed.policies.dad", "DAD"),
        "gru": Late("scorebed.policies.gru", "GRUPolicy"),
        "attention": Late("scorebed.policies.attention", "AttentionPolicy"),
        "belief": Late("scorebed.policies.belief", "Belief"),
        "modes": Late("scorebed.policies.modes", "Modes"),
        GREEDY: _ahead,
        "plan": Late("scorebed.policies.plan", "Plan"),
        "receding-horizon": Late("scorebed.policies.receding_horizon", "RecedingHorizon"),
        STATIC: _static,
        RANDOM: _random,
    },
    made_by="a class, or a function of a task and a key",
    about="""The policies, by the names that `--policy` takes. `register_policy` adds one.

    Example:
        >>> list(sb.POLICIES)[:3]
        ['dad', 'gru', 'attention']
    """,
)


def register_policy(name: str) -> Callable[[PolicyConstructor], PolicyConstructor]:
    """Add a policy of your own, for `--policy NAME` and in Python.

    Written in the file of a task, or in one that it imports, it can be used wherever that task is:
    in training, reports and live.

    Arguments:
        name: lower-case letters, digits and hyphens; not a built-in name.

    Returns:
        A decorator for a class, or a function, that is called as `mine(task, key=key)`. It returns
        what it decorates.

    Raises:
        InvalidValueError: if the name is malformed or built in.

    Example:
        >>> @sb.register_policy("my-policy")
        ... def my_policy(task, *, key):
        ...     return sb.make_policy("static", task, key=key)
        >>> mine = sb.make_policy("my-policy", task, key=jr.key(0))
    """
    return POLICIES.register(name)


def make_policy(name: str, task: Task, *, key: PRNGKeyArray) -> Policy:
    """An untrained policy for a task, with the paper's sizes; it obeys the task's constraint.

    Designs of `random` are those that a score learns from (`paper_sampler`); runs compare their
    policies with designs that are independent of each other.

    Arguments:
        name: a name in `POLICIES`.
        task: the experiment.
        key: the random key of its parameters.

    Returns:
        The policy.

    Raises:
        UnknownNameError: if there is no policy of that name.
        InvalidValueError: if that policy is not for this task.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> policy.adaptive
        False
    """
    return obedient(task, POLICIES.find(name)(task, key=key))
