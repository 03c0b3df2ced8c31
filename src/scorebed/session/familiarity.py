"""Has the policy been here before? Designs of an experiment against those that the policy and its
score met in training.

As in `diagnostics/coverage.py`, a design is unfamiliar if the nearest of a pool of designs of the
same step is more than twice as far away as 99% of the pool are from their nearest neighbours, in
normalised designs. The pools are designs of the policy in experiments drawn from the prior, and
designs of the sampler that the score was trained on. A policy that always begins with one design
has a pool of one point: designs within `LEAST` of it count as the same.

Each step is looked at alone: a sequence of familiar designs may still be a new one."""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from scorebed.diagnostics import NEIGHBOURS, SLACK
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import simulate
from scorebed.runs.load import Run
from scorebed.samplers.base import DesignSampler
from scorebed.session.events import ExperimentState, Vector
from scorebed.session.measurements import array
from scorebed.tasks.base import Task

POOL = 512
LEAST = 0.1  # of the size of the design space: closer designs count as the same


class DesignPool:
    """Designs that are familiar, by step."""

    def __init__(self, task: Task, xis: Float[Array, "N T dx"]):
        self._task = task
        self._pools = np.swapaxes(np.asarray(task.designs.normalise(xis), np.float64), 0, 1)
        self._radii = [
            max(SLACK * float(np.quantile(_nearest(pool), NEIGHBOURS)), LEAST)
            for pool in self._pools
        ]

    def holds(self, index: int, design: Vector) -> bool:
        """Whether a design of measurement `index`, from 0, is familiar. Past the last step of
        training nothing is known, and every design counts as familiar.
        """
        if index >= len(self._pools):
            return True
        here = np.asarray(self._task.designs.normalise(array(design)), np.float64)
        return bool(np.linalg.norm(self._pools[index] - here, axis=1).min() <= self._radii[index])


class Familiarity:
    """The pools of one run, drawn on first use. A policy that was not trained has none."""

    def __init__(self, run: Run):
        self._run = run

    def warnings(self, state: ExperimentState) -> tuple[str, ...]:
        """A sentence for designs, used or proposed, that the policy has not met in training, and
        one for those that its score has not.
        """
        if not self._run.policy.trainable:
            return ()
        refined = None if state.refinement is None else state.refinement.step
        designs = [
            (record.step, record.used) for record in state.measured if record.used is not None
        ]
        if state.proposal is not None and not state.finished:
            designs.append((state.proposal.step, state.proposal.design))
        # A refined policy was trained on its own designs from that step on.
        new = [
            step
            for i, (step, design) in enumerate(designs)
            if (refined is None or step < refined) and not self._policy.holds(i, design)
        ]
        found = []
        if new:
            found.append(
                f"The policy has not met such a design in training: {_listed(new)}. What it "
                "proposes from there on is extrapolation."
            )
        if self._run.score is not None:
            unseen = [
                step
                for i, (step, design) in enumerate(designs)
                if not self._sampler.holds(i, design)
            ]
            if unseen:
                found.append(f"The score was not trained on such a design: {_listed(unseen)}.")
        return tuple(found)

    def warm(self) -> None:
        """Draw what `warnings` will need."""
        if self._run.policy.trainable:
            _ = self._policy
            if self._run.score is not None:
                _ = self._sampler

    @functools.cached_property
    def _policy(self) -> DesignPool:
        task = self._run.task
        return DesignPool(
            task,
            _rollouts(
                task, self._run.policy, jr.split(named(jr.key(0), "familiar", "policy"), POOL)
            ),
        )

    @functools.cached_property
    def _sampler(self) -> DesignPool:
        return DesignPool(
            self._run.task,
            _draws(self._run.sampler, jr.split(named(jr.key(0), "familiar", "sampler"), POOL)),
        )


@eqx.filter_jit
def _rollouts(task: Task, policy: Policy, keys: Key[Array, " N"]) -> Float[Array, "N T dx"]:
    return jax.vmap(lambda key: simulate(task, policy, key=key).xis)(keys)


@eqx.filter_jit
def _draws(sampler: DesignSampler, keys: Key[Array, " N"]) -> Float[Array, "N T dx"]:
    return jax.vmap(lambda key: sampler.sample(key=key))(keys)


def _nearest(pool: np.ndarray) -> np.ndarray:
    """How far each member of a pool is from its nearest neighbour."""
    distances = np.sqrt(
        sum((pool[:, i, None] - pool[None, :, i]) ** 2 for i in range(pool.shape[1]))
    )
    np.fill_diagonal(distances, np.inf)
    return distances.min(1)


def _listed(steps: Sequence[int]) -> str:
    """step 2; steps 2 and 5; steps 2, 5 and 7."""
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"steps {', '.join(map(str, steps[:-1]))} and {steps[-1]}"
