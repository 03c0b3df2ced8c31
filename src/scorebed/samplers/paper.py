"""Which designs the paper trains its scores on, task by task (appendix "Design sampling
distributions").
"""

from scorebed.samplers.ar1 import AR1
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.bounded import Switching, UniformBox
from scorebed.samplers.constrained import constrained_designs
from scorebed.samplers.gaussian import IsotropicGaussian, RandomScaleGaussian
from scorebed.samplers.mixture import SamplerMixture
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Space


def uniform_or_switching(horizon: int, space: Space) -> SamplerMixture:
    """The dynamical systems' sampler: half of the trajectories uniform in the box, half switching
    between its sides.
    """
    return SamplerMixture((UniformBox(horizon, space), Switching(horizon, space)))


def paper_sampler(task: Task) -> DesignSampler:
    """The paper's q(ξ) for a task of the paper; for any other, the one that the paper used on such
    a design space.

    - Tasks with `design_scales` (gravimetry: 0.3 to 1.2 times 40 m): Gaussian designs with a random
      scale.
    - Bounded designs (all dynamical systems): an equal mixture of uniform and switching designs.
    - Designs of which some come from a list: uniform.
    - Unbounded designs (location finding): AR(1) with scale U(0.2, 5), in units of the space, and
      correlation U(0.7, 1).
    - Tasks without a density: Gaussian designs with a random scale U(0.3, 2).

    Designs obey the task's constraint.

    Arguments:
        task: the experiment.

    Returns:
        The sampler.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> sb.paper_sampler(task).horizon
        3
    """
    return constrained_designs(task, unconstrained_paper_sampler(task))


def unconstrained_paper_sampler(task: Task) -> DesignSampler:
    """The same, regardless of the task's constraint."""
    if not task.has_density:
        # Sliced score matching differentiates the density of the designs, which has to be smooth.
        return RandomScaleGaussian(task.horizon, task.designs, low=0.3, high=2.0)
    if task.design_scales is not None:
        low, high = task.design_scales
        return RandomScaleGaussian(task.horizon, task.designs, low=low, high=high)
    if task.designs.listed:
        return UniformBox(task.horizon, task.designs)
    if task.designs.bounded:
        return uniform_or_switching(task.horizon, task.designs)
    return AR1(task.horizon, task.designs)


def reference_sampler(task: Task) -> tuple[DesignSampler, str]:
    """Random designs that a policy is compared with, and their description."""
    sampler: DesignSampler = IsotropicGaussian(task.horizon, task.designs)
    words = "independent Gaussian designs, one design unit wide"
    if task.designs.bounded:
        sampler = UniformBox(task.horizon, task.designs)
        words = "independent uniform designs in the box"
    if task.feasible is not None:
        words = f"{words.removeprefix('independent ')}, with {task.feasible.words()}"
    return constrained_designs(task, sampler), words
