"""The built-in experiments, by the names that the command line knows."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.registry import Late, Registry
from scorebed.tasks.base import Task
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

TASKS: Registry[Callable[..., Task]] = Registry(
    "task",
    {
        "location-finding": LocationFinding,
        "location-finding-3d": functools.partial(LocationFinding, dim=3, sources=10),
        "pendulum": Late("scorebed.tasks.library.pendulum", "Pendulum"),
        "cart-pole": Late("scorebed.tasks.library.cart_pole", "CartPole"),
        "double-link": Late("scorebed.tasks.library.double_link", "DoubleLink"),
        "gravimetry": Late("scorebed.tasks.library.gravimetry", "Gravimetry"),
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
ORACLE_TASKS: Registry[Callable[..., ClosedForm]] = Registry(
    "oracle",
    {
        "linear-gaussian": LinearGaussian,
        "linear-gaussian-2d": functools.partial(
            LinearGaussian,
            mean=(0.5, -1.0),
            covariance=((1.0, 0.6), (0.6, 2.0)),
            noise=0.8,
            bound=1.0,
        ),
        "linear-gaussian-3d": functools.partial(
            LinearGaussian,
            mean=(0.0, 0.3, 1.0),
            covariance=((1.0, 0.5, 0.2), (0.5, 1.5, -0.3), (0.2, -0.3, 0.7)),
            bound=1.0,
        ),
        "projection": Late("scorebed.tasks.oracles.projection", "Projection"),
        "linear-markov": Late("scorebed.tasks.oracles.linear_markov", "LinearMarkov"),
        "sign": Late("scorebed.tasks.oracles.sign", "Sign"),
        "fading-noise": Late("scorebed.tasks.oracles.fading_noise", "FadingNoise"),
    },
    made_by="a class of task with closed forms",
)


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
