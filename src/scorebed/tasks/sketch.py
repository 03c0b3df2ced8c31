"""What a drawing of an experiment needs to know about its task.

    Profile       the outcome along the one design coordinate
    Positions     designs are places in the plane or in space
    TimeSeries    designs and outcomes against the step

`Task.sketch()` gives one of them, by default from the number of coordinates and from whether steps
are independent. A sketch holds indices and names, and no drawing: matplotlib and the web page read
the same one."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scorebed.errors import require

if TYPE_CHECKING:
    from scorebed.tasks.base import Task


@dataclasses.dataclass(frozen=True)
class HiddenObjects:
    """What an experiment looks for in the space of its designs.

    `name` is that of one object, in the singular; `coordinates` lists, for each object, the
    parameters that are its position, one index into θ per design coordinate; `radius` gives the
    size of the objects from θ, and points are drawn without it."""

    name: str
    coordinates: tuple[tuple[int, ...], ...]
    radius: Callable[[Any], float] | None = None

    def __str__(self) -> str:
        return self.name if len(self.coordinates) == 1 else f"{self.name}s"


@dataclasses.dataclass(frozen=True)
class Sketch:
    """How an experiment is drawn, and where among the designs the hidden objects are, if any."""

    hidden: HiddenObjects | None = None


@dataclasses.dataclass(frozen=True)
class Profile(Sketch):
    """One outcome along one design coordinate. `depth` is the parameter that tells how far below
    the line the hidden objects are, if they are below it.
    """

    depth: int | None = None


@dataclasses.dataclass(frozen=True)
class Positions(Sketch):
    """Designs are places in a space of two or more dimensions."""


@dataclasses.dataclass(frozen=True)
class TimeSeries(Sketch):
    """Designs and outcomes against the step."""


def default_sketch(task: "Task") -> Sketch:
    """From the structure of a task: a single outcome of independent steps is a function of one or
    two design coordinates, and anything else goes step by step.
    """
    if task.structure == "iid" and task.outcome_dim == 1 and task.designs.dim <= 2:
        return Profile() if task.designs.dim == 1 else Positions()
    return TimeSeries()


def check_sketch(task: "Task") -> None:
    """Refuse a sketch that does not fit its task."""
    sketch, name = task.sketch(), f"the sketch of {type(task).__name__}"
    dx, k = task.designs.dim, task.prior.dim
    require(
        isinstance(sketch, Profile | Positions | TimeSeries),
        name,
        got=f"a {type(sketch).__name__}",
        expected="a Profile, Positions or TimeSeries",
        fix="return one of scorebed.tasks.sketch, or leave `sketch` out.",
    )
    require(
        not isinstance(sketch, Profile) or dx == task.outcome_dim == 1,
        name,
        got=f"a Profile of {dx} designs and {task.outcome_dim} outcomes",
        expected="one of each",
        fix="return Positions or TimeSeries.",
    )
    require(
        not isinstance(sketch, Positions) or dx >= 2,
        name,
        got=f"Positions of {dx} design",
        expected="two designs or more",
        fix="return Profile or TimeSeries.",
    )
    coordinates = sketch.hidden.coordinates if sketch.hidden else ()
    depths = [sketch.depth] if isinstance(sketch, Profile) and sketch.depth is not None else []
    require(
        all(len(each) == dx for each in coordinates)
        and all(0 <= i < k for each in (*coordinates, depths) for i in each),
        name,
        got=f"the parameters {coordinates}" + (f" at depth {depths[0]}" if depths else ""),
        expected=f"{dx} of the parameters 0 to {k - 1} for each object",
        fix="give the places of its coordinates in theta.",
    )
