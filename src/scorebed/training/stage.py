"""Stages: pieces of training that can be stopped anywhere and go on from what was saved.

A stage knows what it starts from, how it goes on, what it costs and what comes of it; it knows no
folder. The library runs it in memory (`carry_out`), a run keeps it on disk: the same steps, the
same numbers.

    watched = stage.start()  →  stage.go_on(watched, on_block=…)  →  stage.result(watched)

`SingleStage` trains one module by a loss (a score, a density), `BatchStage` a batch of policies by
a gradient, with estimates of the bound along the way and successive halving.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
import optax
from jaxtyping import Int, PRNGKeyArray, PyTree

from scorebed.policies.base import Policy
from scorebed.training.fit import (
    Compiled,
    FitState,
    Gradient,
    Loss,
    Only,
    StepInfo,
    Stop,
    fit_batch,
    fit_one,
    gradient_of,
    group_size,
    member,
    members,
    start,
    start_batch,
)
from scorebed.training.programs import TrainingProgram, block_program
from scorebed.training.successive_halving import Rung, block_size, estimates, places, rungs, taken
from scorebed.training.watched import Block, Moment, OnBlock, Watched, moment, seen_patience, watch


class Stage(abc.ABC):
    """A piece of training of at most `steps` steps; `name` is that of its files and of its entry in
    the ledger.
    """

    name: str
    steps: int
    shareable: ClassVar[bool] = False
    """Whether its members can be trained apart from each other."""

    @abc.abstractmethod
    def start(self) -> Watched:
        """Before the first step; also the template for what was saved."""

    @abc.abstractmethod
    def go_on(self, watched: Watched, *, on_block: OnBlock = lambda _: None) -> Watched:
        """To the end, from wherever `watched` stands. `on_block` sees every block of steps; if it
        answers `Stop`, the stage ends there.
        """

    @abc.abstractmethod
    def result(self, watched: Watched) -> Any:
        """What the next stage, or the run, takes over."""

    def ended_here(self, watched: Watched) -> Watched:
        """What a stage that was ended before its last step comes to."""
        return watched

    @property
    def ended_nle(self) -> int:
        """Likelihood evaluations of that."""
        return 0

    @abc.abstractmethod
    def nle_at_most(self) -> int:
        """Likelihood evaluations that the stage may come to: charged before it begins."""

    @abc.abstractmethod
    def nle(self, watched: Watched) -> int:
        """What it has come to, exactly."""

    def nle_of(self, steps: Sequence[int]) -> int:
        """What it has come to if each of its members has taken so many steps."""
        del steps
        return self.nle_at_most()

    def monitor_nle(self, steps: Sequence[int]) -> int:
        """Likelihood evaluations of the estimates along the way, of members that have taken so many
        steps; they are none of training's.
        """
        del steps
        return 0

    def untrained(self) -> Any:
        """What the stage starts from, made in a way that can be traced; None where `programs` has
        none.
        """
        return None

    def programs(self, fresh: Any, *, together: bool) -> Sequence[TrainingProgram]:
        """What the stage compiles, from its `untrained` or the shapes of it; `together` moves all
        members of a batch at once, as on an accelerator. A stage need not have any: its memory is
        then unknown.
        """
        del fresh, together
        return ()

    def survivors(self, watched: Watched) -> tuple[int, ...]:
        """The numbers of the members that `result` holds, where it is a batch."""
        return watched.furthest()

    def last_step(self, watched: Watched) -> int:
        """The step at which the stage ends: an earlier one if it has ended early already."""
        del watched
        return self.steps

    def shares(self, watched: Watched) -> Sequence[tuple[int, ...]]:
        """Groups of members that several processes may train, each on its own (`go_on_apart`). A
        stage that is not `shareable` is one group, and is over with it.
        """
        return (tuple(range(np.size(watched.state.step))),)

    def apart_until(self, watched: Watched) -> int:
        """The step up to which no group depends on another."""
        return self.last_step(watched)

    def go_on_apart(
        self,
        watched: Watched,
        members: Sequence[int],
        until: int,
        *,
        on_block: OnBlock = lambda _: None,
    ) -> Watched:
        """One group of members up to a step, with the steps that it would take among the others;
        `training/apart.py` puts groups together again.
        """
        del members, until
        return self.go_on(watched, on_block=on_block)


def carry_out(stage: Stage, *, on_block: OnBlock = lambda _: None) -> tuple[Any, list[Moment]]:
    """A stage from its start to its result, in memory, and its history."""
    history: list[Moment] = []

    def note(block: Block) -> None:
        history.append(moment(block))
        on_block(block)

    return stage.result(stage.go_on(stage.start(), on_block=note)), history


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleStage(Stage):
    """One module, trained by a loss. Nothing is made before it is needed."""

    name: str
    steps: int
    make: Callable[[], Any]
    """The untrained module."""
    loss_for: Callable[[PyTree], Loss]
    """The loss, given what of the module is not trained."""
    optimiser: optax.GradientTransformation
    decay: float = 0.0
    """Of the moving average of the parameters, which is what comes of the stage."""
    block: int | None = None
    """Steps per compiled call; as many as suit a progress bar if left out."""
    finish: Callable[[Any], Any] = lambda module: module
    """What is kept of the trained module."""
    step_nle: int
    once_nle: int = 0
    """Likelihood evaluations of a step, and before the first."""
    key: PRNGKeyArray

    @functools.cached_property
    def fresh(self) -> Any:
        """The untrained module."""
        return self.make()

    def start(self) -> Watched:
        return watch(start(eqx.filter(self.fresh, eqx.is_inexact_array), self.optimiser))

    def go_on(self, watched: Watched, *, on_block: OnBlock = lambda _: None) -> Watched:
        found = [watched]

        def on_step(info: StepInfo) -> Any:
            found[0] = found[0].at(info.state)
            return on_block(Block(info.step, info.terms, [], found[0]))

        if watched.done >= self.steps:
            return watched
        fit_one(
            self.loss_for,
            self.fresh,
            steps=self.steps,
            optimiser=self.optimiser,
            decay=self.decay,
            block=self.block or block_size(self.steps),
            on_step=on_step,
            state=watched.state,
            key=self.key,
        )
        return found[0]

    def untrained(self) -> Any:
        return self.make()

    def programs(self, fresh: Any, *, together: bool) -> Sequence[TrainingProgram]:
        del together
        if self.steps == 0:
            return ()
        block = self.block or block_size(self.steps)
        how: dict[str, Any] = {"block": block, "decay": self.decay}
        return (block_program(self.name, self._gradient_for, fresh, self.optimiser, **how),)

    def _gradient_for(self, rest: PyTree) -> Gradient:
        return gradient_of(self.loss_for(rest))

    def result(self, watched: Watched) -> Any:
        return self.finish(eqx.combine(watched.state.average, self.fresh))

    def nle_at_most(self) -> int:
        return self.once_nle + self.steps * self.step_nle

    def nle(self, watched: Watched) -> int:
        return self.nle_of([watched.done])

    def nle_of(self, steps: Sequence[int]) -> int:
        return self.once_nle + max(steps) * self.step_nle


class StepCosts(eqx.Module):
    """What the steps of a batch of restarts cost."""

    @abc.abstractmethod
    def at_most(self, ladder: Sequence[Rung], steps: int) -> int:
        """Of all restarts up to step `steps`, whichever are stopped."""

    @abc.abstractmethod
    def exactly(self, steps: Sequence[int]) -> int:
        """Of restarts that have taken so many steps each."""


class FixedCost(StepCosts):
    """Every step of every restart costs the same."""

    nle: int

    def at_most(self, ladder: Sequence[Rung], steps: int) -> int:
        return taken(ladder, steps) * self.nle

    def exactly(self, steps: Sequence[int]) -> int:
        return sum(steps) * self.nle


class DrawnCost(StepCosts):
    """The cost of a step depends on its draws: `of(count, steps)` gives each restart and step."""

    of: Callable[[int, int], Int[np.ndarray, "P steps"]]

    def at_most(self, ladder: Sequence[Rung], steps: int) -> int:
        return most_expensive(ladder, self.of(ladder[0].restarts, steps))

    def exactly(self, steps: Sequence[int]) -> int:
        costs = self.of(len(steps), max(steps))
        return sum(int(row[:n].sum()) for row, n in zip(costs, steps, strict=True))


def most_expensive(ladder: Sequence[Rung], costs: Int[np.ndarray, "P steps"]) -> int:
    """Restarts draw their own costs: those that go on may be those that cost the most."""
    ends = [*(rung.end for rung in ladder[:-1]), costs.shape[1]]
    each = [costs[:, rung.start : end].sum(1) for rung, end in zip(ladder, ends, strict=True)]
    return sum(
        int(np.sort(cost)[-rung.restarts :].sum()) for rung, cost in zip(ladder, each, strict=True)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchStage(Stage):
    """A batch of policies, or of policies with what is trained with them, by a gradient."""

    shareable: ClassVar[bool] = True

    name: str
    steps: int
    count: int
    """Restarts."""
    make: Callable[[], Any]
    """The untrained batch."""
    gradient_for: Callable[[PyTree], Gradient]
    """The gradient for one member, given what of the batch is not trained."""
    optimiser: optax.GradientTransformation
    decay: float = 0.0
    block: int | None = None
    policies_of: Callable[[Any], Policy] = lambda batch: batch
    """The policies of a batch."""
    estimate: Callable[[Policy], float] | None = None
    """A lower bound of a policy's EIG, to watch and choose by; none where it costs too much."""
    estimate_nle: int = 0
    """Likelihood evaluations of an estimate."""
    every: int = 0
    """Steps between two estimates; 0 for one at the end."""
    keep_best: bool = True
    """Whether the best parameters by the estimates are kept, or the last."""
    patience: int = 0
    """Steps without progress after which training ends; 0 for all steps."""
    halvings: int = 0
    """Times that the worse half of the restarts is stopped."""
    costs: StepCosts
    key: PRNGKeyArray

    @functools.cached_property
    def fresh(self) -> Any:
        """The untrained batch."""
        return self.make()

    @functools.cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """The rungs of successive halving; a single one if nobody is stopped."""
        return rungs(self.steps, self.count, halvings=self.halvings, every=self.every)

    @property
    def _block(self) -> int:
        return self.block or block_size(self.steps, self.every)

    def start(self) -> Watched:
        return watch(start_batch(eqx.filter(self.fresh, eqx.is_inexact_array), self.optimiser))

    def go_on(self, watched: Watched, *, on_block: OnBlock = lambda _: None) -> Watched:
        found = [watched]

        def on_step(info: StepInfo) -> type[Stop] | Only | None:
            lower = self._estimates(info)
            found[0] = found[0].after(info.state, lower)
            answer = on_block(Block(info.step, info.terms, lower, found[0]))
            if answer is Stop or self._over(found[0]):
                return Stop
            return Only(self.survivors(found[0])) if len(self.ladder) > 1 else None

        steps = self.last_step(watched)
        if watched.done >= steps:
            return watched
        fit_batch(
            self.gradient_for,
            self.fresh,
            steps=steps,
            optimiser=self.optimiser,
            decay=self.decay,
            block=self._block,
            on_step=on_step,
            state=watched.state,
            members=self.survivors(watched),
            key=self.key,
        )
        return found[0]

    def untrained(self) -> Any:
        return self.make()

    def programs(self, fresh: Any, *, together: bool) -> Sequence[TrainingProgram]:
        how: dict[str, Any] = {
            "block": self._block,
            "decay": self.decay,
            "members": self.count,
            "together": together,
        }
        return (block_program(self.name, self.gradient_for, fresh, self.optimiser, **how),)

    def result(self, watched: Watched) -> Any:
        best = self.keep_best and self.estimate is not None
        trained = eqx.combine(watched.best if best else watched.state.average, self.fresh)
        return trained if len(self.ladder) == 1 else members(trained, self.survivors(watched))

    def ended_here(self, watched: Watched) -> Watched:
        """With an estimate of the last parameters, which may be the best."""
        lower = self._all_estimates(watched.state) if self.estimate is not None else []
        return watched.after(watched.state, lower)

    @property
    def ended_nle(self) -> int:
        return self.count * self.estimate_nle if self.estimate is not None else 0

    def survivors(self, watched: Watched) -> tuple[int, ...]:
        halved = len(self.ladder) > 1
        return watched.furthest(places(self.ladder, watched.done) if halved else None)

    def last_step(self, watched: Watched) -> int:
        return watched.done if self._over(watched) else self.steps

    def shares(self, watched: Watched) -> Sequence[tuple[int, ...]]:
        """Each member on its own: then nothing depends on how many processes there are."""
        return tuple((number,) for number in self.survivors(watched))

    def go_on_apart(
        self,
        watched: Watched,
        members: Sequence[int],
        until: int,
        *,
        on_block: OnBlock = lambda _: None,
    ) -> Watched:
        found = [watched]

        def on_step(info: StepInfo) -> None:
            lower = self._estimates(info)
            found[0] = found[0].after(info.state, lower)
            on_block(Block(info.step, info.terms, lower, found[0]))

        fit_batch(
            self.gradient_for,
            self.fresh,
            steps=until,
            optimiser=self.optimiser,
            decay=self.decay,
            block=self._block,
            on_step=on_step,
            state=watched.state,
            members=members,
            compiled=self._compiled,
            key=self.key,
        )
        return found[0]

    @functools.cached_property
    def _compiled(self) -> Compiled:
        """A process that trains several groups compiles for the first."""
        return {}

    def apart_until(self, watched: Watched) -> int:
        """The first step at which members may learn of each other: the end of a rung, or the end
        of a block by which nobody may have made progress for too long.
        """
        ends = [rung.end for rung in self.ladder if rung.end > watched.done]
        if self._patience:
            idle = int(watched.progress) + self._patience
            ends.append(self._block * -(-idle // self._block))
        return min([self.steps, *ends])

    def nle_at_most(self) -> int:
        return self.costs.at_most(self.ladder, self.steps)

    def nle(self, watched: Watched) -> int:
        return self.nle_of(np.atleast_1d(watched.state.step).tolist())

    def nle_of(self, steps: Sequence[int]) -> int:
        return self.costs.exactly(steps)

    def monitor_nle(self, steps: Sequence[int]) -> int:
        return self.estimate_nle * sum(estimates(self.ladder, n, every=self.every) for n in steps)

    @property
    def _patience(self) -> int:
        """Steps without progress after which training ends; 0 for all steps."""
        return 0 if self.estimate is None else seen_patience(self.patience, self.every)

    def _over(self, watched: Watched) -> bool:
        return 0 < self._patience <= watched.idle()

    def _estimates(self, info: StepInfo) -> list[float]:
        """A lower bound of every restart, where one is due; NaN for those that were stopped."""
        ends = [rung.end for rung in self.ladder]
        due = self.every and info.step % self.every == 0
        if self.estimate is None or not (due or info.step in ends or info.step >= self.steps):
            return []
        return self._all_estimates(info.state)

    def _all_estimates(self, state: FitState) -> list[float]:
        """A lower bound of every restart that has come furthest; NaN for the others."""
        assert self.estimate is not None, "there is something to estimate by"
        batch = eqx.combine(self.policies_of(state.average), self.policies_of(self.fresh))
        reached = np.atleast_1d(state.step)
        return [
            self.estimate(member(batch, i)) if reached[i] == reached.max() else math.nan
            for i in range(group_size(batch))
        ]
