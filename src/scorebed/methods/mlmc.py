"""MLMC: policies by randomised multilevel Monte Carlo, without the bias of nested Monte Carlo."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Int, PyTree

from scorebed.estimators.mlmc import expected_nle, padded_nle
from scorebed.keys import named
from scorebed.methods.base import Job, require_affordable
from scorebed.methods.fields import Count, Positive, whole
from scorebed.methods.gradient import GradientMethod, ladder, longer
from scorebed.methods.sections import PolicyTraining
from scorebed.training.contrastive import mlmc_loss, mlmc_nle
from scorebed.training.fit import Gradient, gradient_of, member_keys
from scorebed.training.stage import DrawnCost, StepCosts, most_expensive
from scorebed.training.successive_halving import most


class MLMCMethod(GradientMethod):
    """Levels are drawn for every trajectory, so the cost of a step is known only with its key."""

    policy_training: PolicyTraining
    base: Count = 1
    """Contrastive parameters at the lowest level, M0."""
    levels: Annotated[int, whole(0, 30)] = 12
    """The highest level, of M0·2^levels contrastive parameters."""
    tau: Positive = 1.1
    """Rate at which levels become rare, 2^(−τ l)."""

    def gradient(self, job: Job, learned: Any) -> Callable[[PyTree], Gradient]:
        del learned
        return lambda rest: gradient_of(mlmc_loss(rest, job.task, **self._sizes))

    def step_nle(self, job: Job) -> int:
        """The least that a step can cost: every trajectory at the lowest level."""
        return self.policy_training.batch * (job.task.horizon + job.design_nle)

    def costs(self, job: Job, name: str) -> StepCosts:
        return DrawnCost(lambda count, steps: self._drawn(job, name, count, steps))

    def within(self, budget: int, job: Job) -> "MLMCMethod":
        """As many steps as a budget pays for in every repeat, at their realised costs."""
        if self.policy_training.halvings:
            return longer(self, self._longest_halved_drawn(budget, job))
        longest = max(1, budget // (job.policies * self.step_nle(job)))
        costs = [
            sum(self._drawn(job, name, count, longest).sum(0) for name, count in groups)
            for groups in self._repeats(job)
        ]
        total = np.cumsum(costs, axis=1).max(0)
        require_affordable(budget, int(total[0]))
        return longer(self, int(np.searchsorted(total, budget, side="right")))

    def record(self, job: Job, steps: Sequence[int]) -> dict[str, Any]:
        """What the same steps cost on average, and what the paper's padded code evaluates."""
        batches = sum(steps)
        return {
            "nle_expected": round(batches * expected_nle(job.task, **self._sizes)),
            "nle_padded": batches * padded_nle(job.task, **self._sizes),
        }

    @property
    def _sizes(self) -> dict[str, Any]:
        batch = self.policy_training.batch
        return {"batch": batch, "base": self.base, "cap": self.levels, "tau": self.tau}

    def _longest_halved_drawn(self, budget: int, job: Job) -> int:
        longest = self._longest_halved(budget, job)
        costs = [
            [self._drawn(job, name, count, longest) for name, count in groups]
            for groups in self._repeats(job)
        ]

        def spent(steps: int) -> int:
            return max(
                sum(most_expensive(ladder(self, steps, len(c)), c[:, :steps]) for c in each)
                for each in costs
            )

        return most(spent, budget, at_least=1, below=longest + 1)

    def _repeats(self, job: Job) -> list[list[tuple[str, int]]]:
        """The stages of every repeat that train anything."""
        parts = self.parts(job)
        repeats = (job.groups(parts, repeat) for repeat in range(job.repeats))
        return [[(name, count) for name, count in groups if count] for groups in repeats]

    def _drawn(self, job: Job, name: str, count: int, steps: int) -> Int[np.ndarray, "P steps"]:
        """The cost of every step of every restart, from the levels that its key draws."""
        keys = member_keys(count, key=named(job.key, name, "train"))
        each = jax.vmap(lambda key: jax.vmap(lambda n: jr.fold_in(key, n))(jnp.arange(steps)))(keys)
        batch = self.policy_training.batch
        return mlmc_nle(job.task, each, **self._sizes) + batch * job.design_nle
