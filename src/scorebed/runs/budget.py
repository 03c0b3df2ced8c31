"""What a run will spend, known before it starts, and the sizes that a budget allows.

A budget is likelihood evaluations (NLE) of training, over all policies and repeats. As in the
paper, methods turn it into what they need most: those of two stages into steps of the first,
JointVarPost and MLMC into steps, PCE and NMC into contrastive parameters. Where a method evaluates
no likelihood it pays for every simulated outcome instead.

The variational methods simulate and evaluate nothing else, so that a budget which PCE spends in
minutes would keep their networks busy for hours on two cores. Outside of the preset `paper` they
take no more steps than their preset has, and leave the rest."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Int

from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.nle import IOSMC2
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.runs.config import RunConfig
from scorebed.runs.methods import BY_SCORE, CONTRASTIVE, UNTRAINED, UPFRONT
from scorebed.runs.rungs import Rung, most, rungs, taken
from scorebed.scores.laplace import laplace_nle
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import needs_conditional_score
from scorebed.training.contrastive import contrastive_terms, mlmc_nle
from scorebed.training.policy import member_keys
from scorebed.training.score import PILOT

# A score of fewer steps is worse than one whose particles have smaller clouds, each of which costs
# NLE.
ENOUGH_STEPS, SMALLEST_CLOUD = 1000, 2


def score_nle(config: RunConfig, task: Task) -> int:
    """NLE of one value of the score beside those of its target; of both scores where there
    are two.
    """
    score = config.score
    networks = 1 if needs_conditional_score(task) is None else 2
    if score.kind == "laplace":
        return laplace_nle(task, score.particles, score.cloud, score.iterations)
    return (
        networks * score.particles * score.cloud * task.horizon if score.kind == "particles" else 0
    )


def policy_nle(config: RunConfig, task: Task) -> int:
    """NLE of the designs of one experiment, by a policy that evaluates the model."""
    policy: Policy = eqx.filter_eval_shape(
        lambda key: make_policy(config.policy, task, key=key), jr.key(0)
    )
    return policy.design_nle


def upfront_cost(config: RunConfig, task: Task) -> int:
    """NLE of learning one score or density. What another run learned is free, but `jointscore`
    weighs its residuals anew.
    """
    if config.method in BY_SCORE and config.score.kind == "laplace":  # nothing is learned
        return 0
    pilot = PILOT * task.horizon if config.method in BY_SCORE else 0
    if config.score_run:
        return pilot if config.method == "jointscore" else 0
    return pilot + getattr(config, UPFRONT[config.method].section).steps * _upfront_step(
        config, task
    )


def group_cost(config: RunConfig, task: Task, stage: str, count: int, steps: int) -> int:
    """NLE of a batch of policies up to step `steps`, at most: of MLMC and IO-SMC² only the run
    itself knows all.
    """
    if config.method in UNTRAINED:
        return 0
    if config.method == "iosmc":
        return count * iosmc_bill(config, task, steps).upper
    ladder = rungs(config.policy_training, count)
    if config.method != "mlmc":
        return taken(ladder, steps) * _policy_step(config, task)
    return _most_mlmc(ladder, _mlmc_costs(config, task, stage, count, steps))


def restarts_cost(config: RunConfig, task: Task, stage: str, steps: Sequence[int]) -> int:
    """NLE of a batch of policies that have taken so many steps each, exactly."""
    if config.method != "mlmc":
        return sum(steps) * _policy_step(config, task)
    costs = _mlmc_costs(config, task, stage, len(steps), max(steps))
    return sum(int(row[:n].sum()) for row, n in zip(costs, steps, strict=True))


def _most_mlmc(ladder: Sequence[Rung], costs: Int[np.ndarray, "P steps"]) -> int:
    """Restarts draw their own levels: those that go on may be those that cost the most."""
    ends = [*(rung.end for rung in ladder[:-1]), costs.shape[1]]
    each = [costs[:, rung.start : end].sum(1) for rung, end in zip(ladder, ends, strict=True)]
    return sum(
        int(np.sort(cost)[-rung.restarts :].sum()) for rung, cost in zip(ladder, each, strict=True)
    )


def _policy_step(config: RunConfig, task: Task) -> int:
    """NLE of one step of one policy: its trajectories, and with `jointscore` those that its score
    learns from.
    """
    training, T = config.policy_training, task.horizon
    designed, learned_from = training.batch, 0
    if config.method == "jointscore":
        designed, learned_from = training.batch + config.score.batch // 2, config.score.batch
    each = T
    if config.method in BY_SCORE:
        each = T + score_nle(config, task)
    elif config.method in CONTRASTIVE:
        each = contrastive_terms(task, training.inner) * T
    return (training.batch + learned_from) * each + designed * policy_nle(config, task)


def iosmc_bill(config: RunConfig, task: Task, iterations: int) -> IOSMC2:
    """What IO-SMC² may cost, between `.lower` and `.upper`: only the run knows how often its
    particles degenerate.
    """
    sizes = config.iosmc
    return IOSMC2(
        T=task.horizon, K=iterations, N=sizes.trajectories, M=sizes.particles, R=sizes.moves, S=1
    )


def parts(config: RunConfig) -> int:
    """Into how many stages the policies of a repeat are shared out: one for each score; IO-SMC²
    trains one policy at a time.
    """
    if config.method in UPFRONT:
        return UPFRONT[config.method].count(config)
    return config.policies if config.method == "iosmc" else 1


def groups(config: RunConfig) -> list[tuple[str, int]]:
    """The stages in which policies are trained, and how many in each: P shared out among the
    scores, in every repeat.
    """
    shares = parts(config)
    counts = [config.policies // shares + (s < config.policies % shares) for s in range(shares)]
    return [
        (f"policy-{r}-{s}", count) for r in range(config.repeats) for s, count in enumerate(counts)
    ]


def within(config: RunConfig, task: Task, budget: int) -> RunConfig:
    """The same run with the largest sizes that a budget allows; refused if its smallest version
    costs more.
    """
    config = dataclasses.replace(config, budget=budget)
    training = config.policy_training
    if config.method in UNTRAINED:
        return config
    if config.score_run or (config.method in UPFRONT and upfront_cost(config, task) > 0):
        return _longest_upfront(config, task, budget)
    if config.method in CONTRASTIVE:
        least = _spent(_policies(config, inner=1), task)
        each = _spent(_policies(config, inner=2), task) - least
        _require_room(budget, least)
        return _policies(config, inner=1 + (budget - least) // each)
    if config.method == "iosmc":
        each = budget // len(groups(config))
        _require_room(budget, len(groups(config)) * iosmc_bill(config, task, 1).upper)
        return _policies(
            config,
            steps=each // (iosmc_bill(config, task, 2).lower - iosmc_bill(config, task, 1).lower),
        )
    if training.halvings:
        return _policies(config, steps=_longest_halved(config, task, budget))
    if config.method == "mlmc":
        return _policies(config, steps=_longest_mlmc(config, task, budget))
    each = _spent(config, task) // training.steps
    _require_room(budget, each)
    return _policies(config, steps=_up_to(budget // each, training.steps, config))


def _longest_upfront(config: RunConfig, task: Task, budget: int) -> RunConfig:
    """As many steps of stage 1 as fit; with fewer than enough of them, smaller clouds around the
    particles of a score.
    """
    learned = UPFRONT[config.method]
    step = learned.count(config) * _upfront_step(config, task)
    rest = _spent(config, task) - (
        0 if config.score_run else getattr(config, learned.section).steps * step
    )
    if config.score_run:
        _require_room(budget, rest)
        return config
    score = config.score
    clouds = (
        config.method in BY_SCORE
        and score.kind == "particles"
        and score.cloud >= 2 * SMALLEST_CLOUD
    )
    if clouds and budget < rest + min(ENOUGH_STEPS, score.steps) * step:
        smaller = dataclasses.replace(score, cloud=score.cloud // 4 * 2)
        return _longest_upfront(dataclasses.replace(config, score=smaller), task, budget)
    _require_room(budget, rest + step)
    steps = (budget - rest) // step
    if learned.section == "density":
        steps = _up_to(steps, config.density.steps, config)
    section = dataclasses.replace(getattr(config, learned.section), steps=steps)
    return dataclasses.replace(config, **{learned.section: section})


def _up_to(affordable: int, preset: int, config: RunConfig) -> int:
    return affordable if config.preset == "paper" else min(affordable, preset)


def _longest_halved(config: RunConfig, task: Task, budget: int) -> int:
    """The most steps that fit, where rungs make their cost uneven."""
    training, stages = (
        config.policy_training,
        [(stage, count) for stage, count in groups(config) if count],
    )
    mlmc = config.method == "mlmc"
    each = (
        training.batch * (task.horizon + policy_nle(config, task))
        if mlmc
        else _policy_step(config, task)
    )

    def ladder(steps: int, count: int) -> Sequence[Rung]:
        return rungs(dataclasses.replace(training, steps=steps), count)

    def least(steps: int) -> int:
        return each * sum(taken(ladder(steps, count), steps) for _, count in stages)

    _require_room(budget, _spent(_policies(config, steps=1), task))
    found = most(least, budget, at_least=1, below=budget // (each * len(stages)) + 2)
    if not mlmc:
        return _up_to(found, training.steps, config)
    costs = [_mlmc_costs(config, task, stage, count, found) for stage, count in stages]

    def spent(steps: int) -> int:
        return sum(_most_mlmc(ladder(steps, len(cost)), cost[:, :steps]) for cost in costs)

    return most(spent, budget, at_least=1, below=found + 1)


def _longest_mlmc(config: RunConfig, task: Task, budget: int) -> int:
    """The most steps whose realised costs fit."""
    each = task.horizon + policy_nle(config, task)
    lowest = sum(count for _, count in groups(config)) * config.policy_training.batch * each
    most = max(1, budget // lowest)
    costs = sum(
        _mlmc_costs(config, task, stage, count, most).sum(0) for stage, count in groups(config)
    )
    total = np.cumsum(costs)
    _require_room(budget, int(total[0]))
    return int(np.searchsorted(total, budget, side="right"))


def _mlmc_costs(
    config: RunConfig, task: Task, stage: str, count: int, steps: int
) -> Int[np.ndarray, "P steps"]:
    training = config.policy_training
    keys = member_keys(count, key=named(jr.key(config.seed), stage, "train"))
    each = jax.vmap(lambda key: jax.vmap(lambda n: jr.fold_in(key, n))(jnp.arange(steps)))(keys)
    costs = mlmc_nle(
        task, each, batch=training.batch, base=training.base, cap=training.levels, tau=training.tau
    )
    return costs + training.batch * policy_nle(config, task)


def _spent(config: RunConfig, task: Task) -> int:
    """NLE of a whole run."""
    upfront = (
        UPFRONT[config.method].count(config) * upfront_cost(config, task)
        if config.method in UPFRONT
        else 0
    )
    stages: Sequence[tuple[str, int]] = groups(config)
    return upfront + sum(
        group_cost(config, task, stage, n, config.policy_training.steps) for stage, n in stages
    )


def _upfront_step(config: RunConfig, task: Task) -> int:
    """NLE of one step of learning one score or density."""
    if config.method in BY_SCORE:
        return config.score.batch * (task.horizon + score_nle(config, task))
    return config.density.batch * task.horizon


def _policies(config: RunConfig, **values: Any) -> RunConfig:
    return dataclasses.replace(
        config, policy_training=dataclasses.replace(config.policy_training, **values)
    )


def _require_room(budget: int, least: int) -> None:
    if budget < least:
        raise InvalidValueError(
            "--budget",
            got=f"{budget:,} likelihood evaluations",
            expected=f"at least {least:,} for the other sizes of this run",
            fix="raise it, or lower policy_training.steps or policy_training.batch.",
        )
