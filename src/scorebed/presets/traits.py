"""What the files may ask about a task: traits, by the names of their tables."""

from collections.abc import Callable

from scorebed.inference.modes import MANY, finds_modes
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance


def few_modes(task: Task) -> bool:
    """Whether posteriors are sums of few Gaussians, and their modes can be found."""
    return task.few_modes and finds_modes(task) and task.can_order_blocks


def user_model(task: Task) -> bool:
    """Whether the model was written outside of the library."""
    return type(task).__module__.partition(".")[0] != __name__.partition(".")[0]


def greed_serves(task: Task) -> bool:
    """Whether looking one step ahead to outcomes that are finitely many serves the goal: the
    information about all parameters, at no price, by designs that leave each other free.
    """
    free = task.constraint is None and task.cost is None and not has_nuisance(task)
    discrete = task.discrete_outcomes and task.has_density and task.exchangeable_steps
    return discrete and free and task.prior.dim <= MANY


TRAITS: dict[str, Callable[[Task], bool]] = {
    "constrained": lambda task: task.constraint is not None,
    "priced": lambda task: task.cost is not None,
    "few-modes": few_modes,
    "planar": lambda task: task.designs.dim == 2,
    "user-model": user_model,
    "nuisance": has_nuisance,
    "without-density": lambda task: not task.has_density,
    "named-designs": lambda task: task.designs.named,
    "discrete": lambda task: task.discrete_outcomes and task.has_density,
    "discrete-believed": lambda task: (
        task.discrete_outcomes and task.has_density and task.states_follow_data
    ),
    "discrete-ahead": greed_serves,
}
