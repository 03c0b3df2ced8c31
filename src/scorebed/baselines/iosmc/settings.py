"""The settings of IO-SMC² (`training.py`), and what it can cost."""

import math

import equinox as eqx

from scorebed.errors import require
from scorebed.nle import IOSMC2
from scorebed.tasks.base import Task


class IOSMCSettings(eqx.Module):
    """The sizes and constants of IO-SMC². Sizes are by default the paper's; tempering, penalty and
    learning rate depend on the task.
    """

    trajectories: int = eqx.field(static=True, default=1024, kw_only=True)
    """N, the reference among them."""
    particles: int = eqx.field(static=True, default=512, kw_only=True)
    """M, parameter particles of each trajectory."""
    moves: int = eqx.field(static=True, default=3, kw_only=True)
    """R, Metropolis steps after resampling particles."""
    kernels: int = eqx.field(static=True, default=1, kw_only=True)
    """S, conditional SMC sweeps in an iteration."""
    batch: int = eqx.field(static=True, default=64, kw_only=True)
    """Trajectories per step of Adam; an iteration takes ⌊N / batch⌋ steps, one at least."""
    tempering: float = eqx.field(default=1.0, kw_only=True)
    """η: how much informative trajectories are preferred; 0 draws from the policy as it is."""
    penalty: float = eqx.field(default=0.0, kw_only=True)
    """λ, slew-rate penalty in nats per squared unit of the design."""
    inner_threshold: float = eqx.field(default=0.75, kw_only=True)
    """Share of M below which the effective sample size calls for moves: 0 never, above 1 always."""
    outer_threshold: float = eqx.field(default=0.75, kw_only=True)
    """The same for resampling the trajectories."""
    learning_rate: float = eqx.field(default=1e-3, kw_only=True)
    """Of Adam, where no optimiser is given."""

    def __check_init__(self) -> None:
        whole = (
            min(self.trajectories, self.particles) >= 2
            and self.moves >= 0
            and min(self.kernels, self.batch) >= 1
        )
        reals = (
            self.tempering,
            self.penalty,
            self.inner_threshold,
            self.outer_threshold,
            self.learning_rate,
        )
        require(
            whole and all(math.isfinite(x) and x >= 0 for x in reals),
            "the settings of IO-SMC²",
            got=self,
            expected="at least two trajectories and particles, one kernel and batch, and no "
            "negative numbers",
            fix="leave out what you do not mean to change.",
        )

    @property
    def updates(self) -> int:
        """Steps of Adam in an iteration."""
        return max(1, self.trajectories // self.batch)


def worst_iteration(task: Task, settings: IOSMCSettings) -> int:
    """NLE of an iteration in which every trajectory moves at every step."""
    return _bill(task, settings, 2).upper - _bill(task, settings, 1).upper


def worst_start(task: Task, settings: IOSMCSettings) -> int:
    """NLE of drawing the first reference if every trajectory moves at every step."""
    return _bill(task, settings, 1).upper - worst_iteration(task, settings)


def _bill(task: Task, settings: IOSMCSettings, iterations: int) -> IOSMC2:
    N, M, R, S = settings.trajectories, settings.particles, settings.moves, settings.kernels
    return IOSMC2(T=task.horizon, K=iterations, N=N, M=M, R=R, S=S)
