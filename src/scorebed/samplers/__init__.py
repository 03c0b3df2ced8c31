"""Distributions of designs, by the names that the command line knows."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from scorebed.errors import require
from scorebed.registry import Registry
from scorebed.samplers.ar1 import AR1
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.bounded import Switching, UniformBox
from scorebed.samplers.constrained import constrained_designs
from scorebed.samplers.gaussian import IsotropicGaussian, RandomScaleGaussian
from scorebed.samplers.low_rank import LowRank
from scorebed.samplers.mixture import SamplerMixture
from scorebed.samplers.paper import paper_sampler, unconstrained_paper_sampler, uniform_or_switching
from scorebed.samplers.settings import spell, with_settings
from scorebed.tasks.base import Task

__all__ = [
    "AR1",
    "SAMPLERS",
    "DesignSampler",
    "IsotropicGaussian",
    "LowRank",
    "RandomScaleGaussian",
    "SamplerMixture",
    "Switching",
    "UniformBox",
    "make_sampler",
    "paper_sampler",
    "register_sampler",
]

SamplerConstructor: TypeAlias = Callable[[Task], DesignSampler]


@dataclasses.dataclass(frozen=True)
class OfTask:
    """A sampler by its class: `OfTask(AR1)(task)`, or with settings of its own."""

    kind: Callable[..., DesignSampler]
    takes_settings: ClassVar[bool] = True

    def __call__(self, task: Task, **settings: float) -> DesignSampler:
        return with_settings(self.kind, task.horizon, task.designs, settings)


PAPER = "paper"  # the paper's for the task

SAMPLERS: Registry[SamplerConstructor] = Registry(
    "design sampler",
    {
        PAPER: unconstrained_paper_sampler,
        "gaussian": OfTask(IsotropicGaussian),
        "random-scale": OfTask(RandomScaleGaussian),
        "ar1": OfTask(AR1),
        "low-rank": OfTask(LowRank),
        "uniform": OfTask(UniformBox),
        "switching": OfTask(Switching),
        "uniform-switching": lambda task: uniform_or_switching(task.horizon, task.designs),
    },
    made_by="a class, or a function of a task",
    about="""The design samplers, by the names that `--sampler` takes. `register_sampler` adds one.

    Example:
        >>> list(sb.SAMPLERS)[:3]
        ['paper', 'gaussian', 'random-scale']
    """,
)


def register_sampler(name: str) -> Callable[[SamplerConstructor], SamplerConstructor]:
    """Add a design sampler of your own, for `--sampler NAME` and in Python.

    It may ignore a constraint of the task: `make_sampler` applies it to every draw.

    Arguments:
        name: lower-case letters, digits and hyphens; not a built-in name.

    Returns:
        A decorator for a class, or a function, that is called as `mine(task)`. It returns what it
        decorates.

    Raises:
        InvalidValueError: if the name is malformed or built in.

    Example:
        >>> @sb.register_sampler("my-sampler")
        ... def my_sampler(task):
        ...     return sb.make_sampler("gaussian", task)
        >>> mine = sb.make_sampler("my-sampler", task)
    """
    return SAMPLERS.register(name)


def make_sampler(name: str, task: Task) -> DesignSampler:
    """A design sampler by its name, with the paper's settings or its own; its designs obey the
    task's constraint.

    Arguments:
        name: a name in `SAMPLERS`; `uniform`, `switching` and `uniform-switching` need a bounded
            design space. Settings of a sampler follow in brackets: "ar1(low=0.5, high=3)".
        task: the experiment.

    Returns:
        The sampler.

    Raises:
        UnknownNameError: if there is no sampler of that name, or it has no such setting.
        InvalidValueError: if that sampler is not for the task's design space.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> sb.make_sampler("uniform", task).sample(key=jr.key(0)).shape
        (3, 1)
    """
    spelled = spell(name)
    maker: Any = SAMPLERS.find(spelled.name)
    if not spelled.settings:
        return constrained_designs(task, maker(task))
    require(
        getattr(maker, "takes_settings", False),
        f"the design sampler '{spelled.name}'",
        got=f"settings ({', '.join(spelled.settings)})",
        expected="none: it has no settings",
        fix="give its name alone, or name the sampler whose settings you mean.",
    )
    return constrained_designs(task, maker(task, **spelled.settings))
