"""Designs that do not look at the data: drawn from a sampler, or replayed as given."""

from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import ScorebedError
from scorebed.policies.base import Policy
from scorebed.samplers.base import DesignSampler


class Predetermined(Policy):
    """ξ_{1:T} is fixed before the experiment: the noise of the policy *is* the designs, and nothing
    is remembered. Whoever draws the designs sees to the task's constraint.
    """

    @property
    def adaptive(self) -> bool:
        return False

    @property
    def trainable(self) -> bool:
        return False

    @property
    def obeys_constraint(self) -> bool:
        return True

    @property
    def beyond_training(self) -> str:
        return "Further designs are drawn as the first ones were."

    @property
    def short_of_training(self) -> str:
        return "Of the designs that were drawn, the first are used."

    def init(self) -> None:
        return None

    def design(self, memory: None, noise: Float[Array, " dx"]) -> Float[Array, " dx"]:
        del memory
        return noise

    def update(self, memory: None, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> None:
        del memory, xi, y


class RandomDesigns(Predetermined):
    """ξ_{1:T} ~ q(ξ)."""

    sampler: DesignSampler

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        del horizon
        return self.sampler.sample(key=key)


class Replay(Predetermined):
    """The designs passed in as noise; it cannot draw any."""

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        del horizon, key
        raise ScorebedError(
            "a Replay policy cannot draw designs, got a request to, expected designs as noise. "
            "Fix: use RandomDesigns or Static."
        )
