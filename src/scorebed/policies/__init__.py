"""The policies, by the names that the command line knows."""

from typing import Protocol

from jaxtyping import PRNGKeyArray

from scorebed.errors import UnknownNameError
from scorebed.policies.attention import AttentionPolicy
from scorebed.policies.base import Policy
from scorebed.policies.dad import DAD
from scorebed.policies.gru import GRUPolicy
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks.base import IID, Task
from scorebed.tasks.gravimetry import Gravimetry


class PolicyConstructor(Protocol):
    """A policy for a task, with the paper's sizes."""

    def __call__(self, task: Task, *, key: PRNGKeyArray) -> Policy: ...


def _static(task: Task, *, key: PRNGKeyArray) -> Policy:
    return Static.random(task.horizon, task.designs, key=key)


def _random(task: Task, *, key: PRNGKeyArray) -> Policy:
    del key
    return RandomDesigns(paper_sampler(task))


POLICIES: dict[str, PolicyConstructor] = {
    "dad": DAD,
    "gru": GRUPolicy,
    "attention": AttentionPolicy,
    "static": _static,
    "random": _random,
}


def make_policy(name: str, task: Task, *, key: PRNGKeyArray) -> Policy:
    """A fresh policy for a task, with the paper's sizes."""
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    return POLICIES[name](task, key=key)


def paper_policy(task: Task) -> str:
    """The policy that the paper uses for a task; for other tasks, one that uses exchangeability exactly where it holds."""
    if isinstance(task, Gravimetry):
        return "attention"
    return "dad" if isinstance(task, IID) else "gru"
