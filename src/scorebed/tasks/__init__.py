"""The built-in experiments, by the names that the command line knows."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.registry import Registry
from scorebed.tasks.base import Task
from scorebed.tasks.library.cart_pole import CartPole
from scorebed.tasks.library.double_link import DoubleLink
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.oracles.projection import Projection
from scorebed.tasks.oracles.sign import Sign

TASKS: Registry[Callable[..., Task]] = Registry(
    "task",
    {
        "location-finding": LocationFinding,
        "location-finding-3d": functools.partial(LocationFinding, dim=3, sources=10),
        "pendulum": Pendulum,
        "cart-pole": CartPole,
        "double-link": DoubleLink,
        "gravimetry": Gravimetry,
        "linear-gaussian": LinearGaussian,
    },
    made_by="a class of task",
    about="""The built-in tasks, by the names that the command line takes.

    Example:
        >>> list(sb.TASKS)[:2]
        ['location-finding', 'location-finding-3d']
    """,
)

# Tasks with closed-form answers, to test estimators and bounds with; only `linear-gaussian` is
# public.
ORACLE_TASKS: dict[str, Callable[..., ClosedForm]] = {
    "linear-gaussian": LinearGaussian,
    "linear-gaussian-2d": functools.partial(
        LinearGaussian, mean=(0.5, -1.0), covariance=((1.0, 0.6), (0.6, 2.0)), noise=0.8, bound=1.0
    ),
    "linear-gaussian-3d": functools.partial(
        LinearGaussian,
        mean=(0.0, 0.3, 1.0),
        covariance=((1.0, 0.5, 0.2), (0.5, 1.5, -0.3), (0.2, -0.3, 0.7)),
        bound=1.0,
    ),
    "projection": Projection,
    "linear-markov": LinearMarkov,
    "sign": Sign,
    "fading-noise": FadingNoise,
}


def make_task(name: str, **sizes: Any) -> Task:
    """A built-in task, with the paper's sizes but for those given.

    Arguments:
        name: a name in `TASKS`.
        sizes: arguments of the task's class, by name.

    Returns:
        The task.

    Raises:
        UnknownNameError: if there is no such task or size.
        InvalidValueError: if the task refuses a size, or the name is that of a file.

    Example:
        >>> hidden = sb.make_task("location-finding", sources=3, horizon=10)
        >>> hidden.horizon, hidden.prior.dim
        (10, 6)
    """
    if ".py:" in name:
        raise InvalidValueError(
            "the task",
            got=f"'{name}'",
            expected="a built-in one here",
            fix="a file is only executed where its user names it: by train, check or --task; see "
            "docs/own-model.md.",
        )
    make = TASKS.find(name)
    accepted = inspect.signature(make).parameters
    for size in sizes:
        if size not in accepted:
            raise UnknownNameError(f"size of the task '{name}'", size, accepted)
    return make(**sizes)
