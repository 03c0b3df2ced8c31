"""What the variational methods share: the sizes of their densities, and training one upfront."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import equinox as eqx
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed._jit import jit_once
from scorebed.densities.mixture_posterior import MixturePosterior
from scorebed.keys import named
from scorebed.methods.base import Job, require_affordable
from scorebed.methods.fields import Count, Decay, NonNegative, Positive, whole
from scorebed.methods.gradient import GradientMethod, capped
from scorebed.methods.sections import require_falling
from scorebed.methods.settings import PairError
from scorebed.samplers.base import DesignSampler
from scorebed.scores.standardise import standardiser
from scorebed.scores.transformer import FREQUENCY_SCALE
from scorebed.tasks.base import Task
from scorebed.training.fit import Gradient
from scorebed.training.policy import gradient_by
from scorebed.training.score import score_optimiser

SomeUpfrontDensity = TypeVar("SomeUpfrontDensity", bound="UpfrontDensity")


class UpfrontDensity(GradientMethod):
    """A density is learned on the sampler's designs, and policies raise the bound that it gives."""

    network: eqx.AbstractVar[Any]
    """Sizes and training of the density."""

    def gradient(self, job: Job, learned: Any) -> Callable[[PyTree], Gradient]:
        training = self.policy_training
        clip = training.trajectory_clip
        return gradient_by(
            job.task, learned, batch=training.batch, trajectory_clip=clip, key=job.key
        )

    def upfront_values(self, table: str) -> dict[str, Any]:
        return {table: dataclasses.asdict(self.network)}

    def step_nle(self, job: Job) -> int:
        """No likelihood is evaluated; every simulated outcome is charged."""
        return self.policy_training.batch * (job.task.horizon + job.design_nle)

    def within(self: SomeUpfrontDensity, budget: int, job: Job) -> SomeUpfrontDensity:
        """As many steps of the density as a budget pays for.

        Nothing but simulations is paid, so that a budget which PCE spends in minutes would keep a
        network busy for hours: mostly (`Job.capped`) there are no more steps than in the preset.
        """
        if job.taken_over:
            require_affordable(budget, self.nle(job))
            return self
        one, two = (self.with_network_steps(n).nle(job) for n in (1, 2))
        require_affordable(budget, one)
        steps = 1 + (budget - one) // (two - one)
        return self.with_network_steps(capped(job, steps, self.network.steps))

    def with_network_steps(self: SomeUpfrontDensity, steps: int) -> SomeUpfrontDensity:
        """The same method with another number of steps of its density."""
        return dataclasses.replace(self, network=dataclasses.replace(self.network, steps=steps))

    def with_steps(
        self: SomeUpfrontDensity, job: Job, upfront: int | None, policies: int
    ) -> SomeUpfrontDensity:
        found = super().with_steps(job, upfront, policies)
        return found if upfront is None else found.with_network_steps(upfront)

    def timed(self: SomeUpfrontDensity, steps: int, every: int) -> SomeUpfrontDensity:
        return super().timed(steps, every).with_network_steps(steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowTraining:
    """A masked autoregressive flow, and its training."""

    width: Count
    """Width of the conditioners of the flow."""
    layers: Count
    """Number of layers of the flow."""
    depth: Count = 2
    """Hidden layers of each conditioner."""
    bins: Annotated[int, whole(2, 1000)] = 8
    """Bins of each spline."""
    steps: Count
    """Number of training steps."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive = 1e-3
    """Peak learning rate of Adam."""
    floor_rate: NonNegative = 1e-6
    """Learning rate at the end of the cosine decay."""
    warmup_share: Decay = 0.001
    """Share of the steps over which the learning rate rises to its peak."""
    clip: Positive = 10.0
    """Largest norm of a gradient; longer ones are shortened to it."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""

    def __post_init__(self) -> None:
        require_falling("floor_rate", self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorSizes:
    """A mixture posterior from a transformer, and its optimiser."""

    width: Count
    """Width of its network, the transformer's model dimension."""
    blocks: Count
    """Number of transformer blocks."""
    heads: Count = 8
    """Number of attention heads, which divides the width."""
    components: Count = 10
    """Gaussians of the mixture."""
    frequency_scale: Positive = FREQUENCY_SCALE
    """Standard deviation of the Fourier features' frequencies, in radians per standard deviation of
    the inputs. The paper's text read literally, 2π times N(0, 10²), is 62.83.
    """
    learning_rate: Positive = 1e-3
    """Peak learning rate of Adam."""
    floor_rate: NonNegative = 1e-6
    """Learning rate at the end of the cosine decay."""
    warmup_share: Decay = 0.001
    """Share of the steps over which the learning rate rises to its peak."""
    clip: Positive = 10.0
    """Largest norm of a gradient; longer ones are shortened to it."""

    def __post_init__(self) -> None:
        require_falling("floor_rate", self)
        if self.width % self.heads:
            raise PairError(
                "heads", "width", got=self.heads, limit=self.width, expected="a divisor of"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorTraining(PosteriorSizes):
    """A mixture posterior that is trained by itself, on a sampler's or a policy's experiments."""

    steps: Count
    """Number of training steps."""
    batch: Count
    """Number of simulated experiments per training step."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""


def posterior_maker(
    sizes: Any, task: Task, sampler: DesignSampler
) -> Callable[[PRNGKeyArray], MixturePosterior]:
    """The mixture posterior of a key.

    Of its embedding only the frequencies are settings; the rest keeps the paper's proportions to
    the width: 64 features and hidden layers of 192 and 128 at 256.
    """
    width = sizes.width

    def make(key: PRNGKeyArray) -> MixturePosterior:
        standardise = standardiser(task, sampler, key=named(key, "standardise"))
        return MixturePosterior(
            task,
            standardise,
            components=sizes.components,
            width=width,
            blocks=sizes.blocks,
            heads=sizes.heads,
            features=max(1, width // 4),
            sigma=sizes.frequency_scale,
            hidden=(max(1, 3 * width // 4), max(1, width // 2)),
            key=named(key, "init"),
        )

    return make


def fresh_posterior(
    sizes: Any, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
) -> MixturePosterior:
    """An untrained mixture posterior."""
    made: MixturePosterior = jit_once(posterior_maker(sizes, task, sampler))(key)
    return made


def density_optimiser(sizes: Any, steps: int) -> optax.GradientTransformation:
    """The paper's for every density, and clipping: Adam, warm-up, cosine decay over so many
    steps.
    """
    return score_optimiser(
        steps=steps,
        learning_rate=sizes.learning_rate,
        floor_rate=sizes.floor_rate,
        warmup_share=sizes.warmup_share,
        clip=sizes.clip,
    )
