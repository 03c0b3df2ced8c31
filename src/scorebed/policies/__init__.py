"""The policies, by the names that the command line knows."""

from collections.abc import Callable
from typing import Protocol

from jaxtyping import PRNGKeyArray

from scorebed.policies.attention import AttentionPolicy
from scorebed.policies.base import Policy
from scorebed.policies.constrained import obedient
from scorebed.policies.dad import DAD
from scorebed.policies.gru import GRUPolicy
from scorebed.policies.modes import Modes
from scorebed.policies.plan import Plan
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.registry import Registry
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks.base import Task


class PolicyConstructor(Protocol):
    """A policy for a task, with the paper's sizes."""

    def __call__(self, task: Task, *, key: PRNGKeyArray) -> Policy: ...


def _static(task: Task, *, key: PRNGKeyArray) -> Policy:
    return Static.random(task.horizon, task.designs, key=key)


def _random(task: Task, *, key: PRNGKeyArray) -> Policy:
    del key
    return RandomDesigns(paper_sampler(task))


# Designs that every run is compared with.
STATIC, RANDOM = "static", "random"

POLICIES: Registry[PolicyConstructor] = Registry(
    "policy",
    {
        "dad": DAD,
        "gru": GRUPolicy,
        "attention": AttentionPolicy,
        "modes": Modes,
        "plan": Plan,
        STATIC: _static,
        RANDOM: _random,
    },
    made_by="a class, or a function of a task and a key",
)


def register_policy(name: str) -> Callable[[PolicyConstructor], PolicyConstructor]:
    """A policy of your own for `--policy NAME`: `@register_policy("mine")` above a class that is
    made as `Mine(task, key=key)`.

    Written in the file of a task, or in one that it imports, it is known wherever that task is: in
    training, reports and live."""
    return POLICIES.register(name)


def make_policy(name: str, task: Task, *, key: PRNGKeyArray) -> Policy:
    """A fresh policy for a task, with the paper's sizes; it obeys the task's constraint."""
    return obedient(task, POLICIES.find(name)(task, key=key))
