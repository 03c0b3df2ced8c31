"""Which designs the paper trains its scores on, task by task (appendix "Design sampling
distributions").
"""

from scorebed.samplers.ar1 import AR1
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.bounded import Switching, UniformBox
from scorebed.samplers.constrained import ConstrainedDesigns
from scorebed.samplers.gaussian import IsotropicGaussian, RandomScaleGaussian
from scorebed.samplers.mixture import Mixture
from scorebed.tasks.base import Task
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.spaces import Box, Space


def uniform_or_switching(horizon: int, space: Space) -> Mixture:
    """The dynamical systems' sampler: half of the trajectories uniform in the box, half switching
    between its sides.
    """
    return Mixture((UniformBox(horizon, space), Switching(horizon, space)))


def paper_sampler(task: Task) -> DesignSampler:
    """The paper's q(ξ) for a task of the paper, and for any other the one that the paper used on
    such a design space.

    - Gravimetry: Gaussian designs with a random scale U(0.3, 1.2), times 40 m.
    - Designs in a box (all dynamical systems): an equal mixture of uniform and switching designs.
    - Unbounded designs (location finding): AR(1) with scale U(0.2, 5), in units of the space, and
      correlation U(0.7, 1).
    - Tasks without a density: Gaussian choices with a random scale U(0.3, 2).

    Under a constraint of the task these are the free choices, and the designs obey.
    """
    return _obeying(task, _free_sampler(task))


def _free_sampler(task: Task) -> DesignSampler:
    if (
        not task.has_density
    ):  # sliced score matching differentiates the density of the designs: a smooth one
        return RandomScaleGaussian(task.horizon, task.designs, low=0.3, high=2.0)
    if isinstance(task, Gravimetry):
        return RandomScaleGaussian(task.horizon, task.designs, low=0.3, high=1.2)
    if isinstance(task.designs, Box):
        return uniform_or_switching(task.horizon, task.designs)
    return AR1(task.horizon, task.designs)


def reference_sampler(task: Task) -> tuple[DesignSampler, str]:
    """Random designs to beat, and what they are in words."""
    sampler: DesignSampler = IsotropicGaussian(task.horizon, task.designs)
    words = "independent Gaussian designs, one design unit wide"
    if isinstance(task.designs, Box):
        sampler, words = (
            UniformBox(task.horizon, task.designs),
            "independent uniform designs in the box",
        )
    reach = task.reach
    if reach is None:
        return sampler, words
    return _obeying(task, sampler), f"{words.removeprefix('independent ')}, with {reach.words()}"


def _obeying(task: Task, sampler: DesignSampler) -> DesignSampler:
    reach = task.reach
    return sampler if reach is None else ConstrainedDesigns(sampler, reach)
