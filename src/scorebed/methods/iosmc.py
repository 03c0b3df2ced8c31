"""IO-SMC²: policies by nested particle filters and Markovian score climbing (Iqbal et al.)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from scorebed.baselines.iosmc.settings import IOSMCSettings
from scorebed.baselines.iosmc.training import (
    iosmc_programs,
    realised_nle,
    start_iosmc,
    train_iosmc,
)
from scorebed.errors import require
from scorebed.keys import named
from scorebed.methods.base import Job, Method, require_affordable
from scorebed.methods.fields import LARGEST, Count, NonNegative, whole
from scorebed.methods.gradient import adam, monitor, static_training
from scorebed.methods.pce import PCEMethod
from scorebed.methods.sections import PolicyTraining
from scorebed.nle import IOSMC2
from scorebed.policies.base import Policy, StochasticPolicy
from scorebed.tasks.base import Task
from scorebed.training.fit import StepInfo, Stop
from scorebed.training.programs import TrainingProgram
from scorebed.training.stage import Stage
from scorebed.training.successive_halving import estimates, rungs
from scorebed.training.watched import Block, OnBlock, Watched, seen_patience, watch


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreClimbing(Stage):
    """One policy, by iterations of score climbing; what comes of it is a batch of one."""

    name: str
    steps: int
    job: Job
    method: "IOSMCMethod"
    key: PRNGKeyArray

    @functools.cached_property
    def fresh(self) -> StochasticPolicy:
        """The untrained policy."""
        policy = self.job.make_policy(self.job.task, key=named(self.job.key, self.name, "init"))
        return require_density(policy)

    @functools.cached_property
    def budget(self) -> int | None:
        """The stage's share of what a repeat may spend."""
        parts = self.method.parts(self.job)
        return self.job.budget // parts if self.job.budget else None

    def start(self) -> Watched:
        return watch(start_iosmc(self.job.task, self.fresh, adam(self.method.policy_training)))

    def go_on(self, watched: Watched, *, on_block: OnBlock = lambda _: None) -> Watched:
        found, training = [watched], self.method.policy_training
        estimate = monitor(self.job, training)

        def on_step(info: StepInfo) -> type[Stop] | None:
            due = info.step % training.monitor_every == 0 or info.step >= self.steps
            policy = eqx.combine(info.state.average, self.fresh)
            lower = [estimate(policy)] if due and estimate is not None else []
            found[0] = found[0].after(info.state, lower)
            on_block(Block(info.step, info.terms, lower, found[0]))
            return Stop if self._over(found[0]) else None

        _, state = train_iosmc(
            self.job.task,
            self.fresh,
            self.method.particle_settings(),
            iterations=self.last_step(watched),
            optimiser=adam(training),
            budget=self.budget,
            state=watched.state,
            on_step=on_step,
            key=self.key,
        )
        return found[0].at(state)

    def untrained(self) -> StochasticPolicy:
        return require_density(self.job.make_policy(self.job.task, key=self.job.key))

    def programs(self, fresh: StochasticPolicy, *, together: bool) -> Sequence[TrainingProgram]:
        del together  # one policy at a time
        optimiser = adam(self.method.policy_training)
        return iosmc_programs(
            self.name, self.job.task, fresh, self.method.particle_settings(), optimiser
        )

    def result(self, watched: Watched) -> Policy:
        best = self.method.policy_training.keep == "best"
        params = watched.best if best else watched.state.params
        policy = eqx.combine(params, self.fresh)
        batch: Policy = jax.tree.map(
            lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, policy
        )
        return batch

    def last_step(self, watched: Watched) -> int:
        return watched.done if self._over(watched) else self.steps

    def nle_at_most(self) -> int:
        most = self.method.bill(self.job, self.steps).upper
        return most if self.budget is None else min(most, self.budget)

    def nle(self, watched: Watched) -> int:
        return realised_nle(watched.state)

    def monitor_nle(self, steps: Sequence[int]) -> int:
        training = self.method.policy_training
        estimate = monitor(self.job, training)
        if estimate is None:
            return 0
        ladder = rungs(self.steps, 1, halvings=0, every=training.monitor_every)
        looks = sum(estimates(ladder, n, every=training.monitor_every) for n in steps)
        return looks * estimate.nle(self.job.design_nle)

    def _over(self, watched: Watched) -> bool:
        training = self.method.policy_training
        if monitor(self.job, training) is None:
            return False
        return 0 < seen_patience(training.patience, training.monitor_every) <= watched.idle()


class IOSMCMethod(Method):
    """Nested particles; iterations, batches of trajectories and rates are those of stage 2."""

    serves_discrete: ClassVar[bool] = True

    policy_training: PolicyTraining
    trajectories: Annotated[int, whole(2, LARGEST)]
    """Trajectories of a sweep, N, the reference among them."""
    particles: Annotated[int, whole(2, LARGEST)]
    """Parameters that every trajectory carries, M."""
    moves: Annotated[int, whole(0, 1000)] = 3
    """Metropolis steps of degenerate particles, R."""
    tempering: NonNegative = 1.0
    """How much informative trajectories are preferred."""
    penalty: NonNegative = 0.0
    """Price of a changing design, in nats per squared unit."""
    inner: Count = 15
    """Contrastive parameters of PCE, which trains the static designs to compare with."""

    @property
    def policy_settings(self) -> PolicyTraining:
        return self.policy_training

    def supports(self, task: Task) -> None:
        Method.supports(self, task)
        halvings = self.policy_training.halvings
        require(
            halvings == 0,
            "policy_training.halvings",
            got=f"{halvings}, but iosmc trains one policy at a time",
            expected="0",
            fix="leave it out.",
        )
        require(
            not task.designs.listed,
            f"the designs of {type(task).__name__} for the method iosmc",
            got="some that come from a list",
            expected="designs with a density",
            fix="leave --method out.",
        )

    def supports_policy(self, policy: Policy) -> None:
        require_density(policy)

    def parts(self, job: Job) -> int:
        """One policy at a time."""
        return job.policies

    def train(self, job: Job, learned: Any, name: str, count: int) -> ScoreClimbing:
        del learned, count
        key = named(job.key, name, "train")
        steps = self.policy_training.steps
        return ScoreClimbing(name=name, steps=steps, job=job, method=self, key=key)

    def static_reference(self) -> tuple[Method, str] | None:
        training = static_training(self.policy_training)
        return PCEMethod(policy_training=training, inner=self.inner), "PCE"

    def within(self, budget: int, job: Job) -> "IOSMCMethod":
        """As many iterations as may fit if no particles degenerate; the run stops before one that
        does not.
        """
        parts = self.parts(job)
        require_affordable(budget, parts * self.bill(job, 1).upper)
        least = self.bill(job, 2).lower - self.bill(job, 1).lower
        return self._of_steps(budget // parts // least)

    def with_steps(self, job: Job, upfront: int | None, policies: int) -> "IOSMCMethod":
        del job, upfront
        return self._of_steps(policies)

    def timed(self, steps: int, every: int) -> "IOSMCMethod":
        few: dict[str, Any] = {
            "steps": steps,
            "monitor_every": every,
            "patience": 0,
            "keep": "last",
        }
        training = dataclasses.replace(self.policy_training, **few)
        return dataclasses.replace(self, policy_training=training)

    def bill(self, job: Job, iterations: int) -> IOSMC2:
        """What it may cost: only the run knows how often its particles degenerate."""
        N, M, R = self.trajectories, self.particles, self.moves
        return IOSMC2(T=job.task.horizon, K=iterations, N=N, M=M, R=R, S=1)

    def particle_settings(self) -> IOSMCSettings:
        """For the algorithm itself."""
        return IOSMCSettings(
            trajectories=self.trajectories,
            particles=self.particles,
            moves=self.moves,
            batch=self.policy_training.batch,
            tempering=self.tempering,
            penalty=self.penalty,
        )

    def _of_steps(self, steps: int) -> "IOSMCMethod":
        training = dataclasses.replace(self.policy_training, steps=steps)
        return dataclasses.replace(self, policy_training=training)


def require_density(policy: Policy) -> StochasticPolicy:
    """Refuse a policy whose designs have no density."""
    require(
        isinstance(policy, StochasticPolicy),
        "the policy of iosmc",
        got=type(policy).__name__,
        expected="one whose designs have a density",
        fix="add --policy gru.",
    )
    assert isinstance(policy, StochasticPolicy)  # for the type checker
    return policy
