"""The built-in experiments, by the names that the command line knows."""

from collections.abc import Callable

from scorebed.errors import UnknownNameError
from scorebed.tasks.base import Task
from scorebed.tasks.cartpole import CartPole
from scorebed.tasks.double_link import DoubleLink
from scorebed.tasks.gravimetry import Gravimetry
from scorebed.tasks.location import LocationFinding
from scorebed.tasks.pendulum import Pendulum

TASKS: dict[str, Callable[..., Task]] = {
    "location-finding": LocationFinding,
    "location-finding-3d": lambda **options: LocationFinding(**{"dim": 3, "sources": 10} | options),
    "pendulum": Pendulum,
    "cart-pole": CartPole,
    "double-link": DoubleLink,
    "gravimetry": Gravimetry,
}


def make_task(name: str) -> Task:
    """A built-in task with the paper's sizes."""
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]()
