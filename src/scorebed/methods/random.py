"""Random designs: nothing is trained."""

from typing import ClassVar

from scorebed.methods.base import Job, Method
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.samplers.paper import reference_sampler


class RandomMethod(Method):
    """Independent designs, uniform in a box or Gaussian."""

    serves_discrete: ClassVar[bool] = True
    serves_names: ClassVar[bool] = True
    has_own_policy: ClassVar[bool] = True
    designs_in_words: ClassVar[str] = "designs drawn at random"
    needs_density: ClassVar[bool] = False
    serves_nuisance: ClassVar[bool] = True
    compared_with_random: ClassVar[bool] = False

    def untrained(self, job: Job) -> Policy:
        return RandomDesigns(reference_sampler(job.task)[0])
