"""What the files may ask about a task: traits, by the names of their tables."""

from collections.abc import Callable

from scorebed.inference.modes import MANY, finds_modes, has_modes
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance


def few_modes(task: Task) -> bool:
    """Whether posteriors are sums of few Gaussians, and their modes can be found."""
    return task.few_modes and finds_modes(task) and task.can_order_blocks


OURS = __name__.partition(".")[0]
BY_USERS = f"{OURS}.tasks.numpyro"  # what a user's NumPyro model becomes


def user_model(task: Task) -> bool:
    """Whether the model was written outside of the library."""
    module = type(task).__module__
    return module.partition(".")[0] != OURS or module.startswith(BY_USERS)


def many_by_modes(task: Task) -> bool:
    """Whether there is so much to learn about many parameters that contrastive bounds saturate, and
    the modes of posteriors can be found.
    """
    return has_modes(task) and task.can_order_blocks and task.prior.dim > MANY


def greed_serves(task: Task) -> bool:
    """Whether looking one step ahead serves the goal: the information about all parameters, which
    are few, at no price, by independent steps whose designs leave each other free.
    """
    independent = task.has_density and task.exchangeable_steps
    return independent and free(task) and task.prior.dim <= MANY


def planning_serves(task: Task) -> bool:
    """Whether planning to the end from the posterior's mode serves the goal: one mode, Markov
    transitions, and the information about all parameters at no price and without constraints.
    """
    return task.exchangeable_transitions and few_modes(task) and free(task)


def free(task: Task) -> bool:
    """Whether all that counts is the information about all parameters, by any designs."""
    return task.constraint is None and task.cost is None and not has_nuisance(task)


# Of tasks whose usual run trains no policy: whoever asks for one, or for a score, has both.
UNTRAINED = "user-ahead"

TRAITS: dict[str, Callable[[Task], bool]] = {
    "constrained": lambda task: task.constraint is not None,
    "priced": lambda task: task.cost is not None,
    "few-modes": few_modes,
    "planned": planning_serves,
    "planar": lambda task: task.designs.dim == 2,
    "user-model": user_model,
    "user-many": lambda task: user_model(task) and many_by_modes(task),
    "nuisance": has_nuisance,
    "without-density": lambda task: not task.has_density,
    "named-designs": lambda task: task.designs.named,
    "discrete": lambda task: task.discrete_outcomes and task.has_density,
    "discrete-believed": lambda task: (
        task.discrete_outcomes and task.has_density and task.states_follow_data
    ),
    "discrete-ahead": lambda task: task.discrete_outcomes and greed_serves(task),
    UNTRAINED: lambda task: user_model(task) and greed_serves(task),
}
