"""Limits of an experiment and the constraint of its task, together: where the next design may lie.

    a = max(a_t, low),   b = min(b_t, high − (later steps) · gap)

with [a_t, b_t] what the constraint leaves after the design before (`tasks/constraints.py`), and
room kept for the later steps of coordinates in rising order. What the policy wants is moved to the
nearest design in there. Moved to the limits alone, the second of two sampling times past the upper
one would be the first once more.

Where a step has room, every later one has: the designs in between keep to the same rule.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.errors import InvalidValueError, ScorebedError
from scorebed.policies.base import Memory, Policy
from scorebed.policies.constrained import Constrained, ConstrainedStochastic
from scorebed.session.state import Limits, State, Vector
from scorebed.tasks.base import Task
from scorebed.tasks.constraints import FeasibleRange

ROUNDING = 1e-5  # of a design: what single precision may be off by


class Room(eqx.Module):
    """Where designs may lie in an experiment with so many measurements in all."""

    reach: FeasibleRange = eqx.field(static=True)
    limits: Limits = eqx.field(static=True)
    measurements: int = eqx.field(static=True)

    def interval(
        self, previous: Float[Array, " dx"], step: Int[Array, ""]
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """[a, b] of the measurement number `step`, counted from 0; empty (a > b) where there is no
        such design.
        """
        a, b = self.reach.interval(previous, step)
        low, high = (
            jnp.asarray([none if value is None else value for value in side], previous.dtype)
            for side, none in ((self.limits.low, -jnp.inf), (self.limits.high, jnp.inf))
        )
        kept = jnp.asarray(
            [limit.gap if limit.rising else 0.0 for limit in self.reach.limits], previous.dtype
        )
        later = jnp.maximum(self.measurements - 1 - step, 0).astype(previous.dtype)
        return jnp.maximum(a, low), jnp.minimum(b, high - later * kept)


class Confined(Policy):
    """A policy under a constraint, within limits. At a limit its gradient is that of the design
    which is used, so that it still says whether the policy should ask for less.
    """

    inside: Constrained | ConstrainedStochastic
    room: Room

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        return self.inside.sample_noise(horizon, key=key)

    def init(self) -> Memory:
        return self.inside.init()

    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        wanted = self.inside.design(memory, noise)
        allowed = jnp.clip(
            wanted, *self.room.interval(memory.previous.astype(wanted.dtype), memory.step)
        )
        return wanted + jax.lax.stop_gradient(allowed - wanted)

    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        return self.inside.update(memory, xi, y)


def room_of(task: Task, known: State) -> Room | None:
    """The room for designs; None where there are no limits, or no constraint beside them."""
    reach = task.feasible
    if reach is None or known.limits is None:
        return None
    return Room(reach, known.limits, len(known.measured) + known.horizon - len(known.records))


def confined(policy: Policy, room: Room | None) -> Policy:
    """A policy that keeps to a room, if it is one under a constraint; `freed` gives it back."""
    if room is None or not isinstance(policy, Constrained | ConstrainedStochastic):
        return policy
    return Confined(policy, room)


def freed(policy: Policy) -> Policy:
    """The policy that was confined, or any other as it is."""
    return policy.inside if isinstance(policy, Confined) else policy


def nearest(task: Task, known: State, wanted: Vector) -> Vector:
    """The design to propose where the policy wants `wanted`; `ScorebedError` where limits and
    constraint leave none.
    """
    room = room_of(task, known)
    if room is None:
        return known.allowed(wanted)
    low, high = _ends(room, known)
    if _empty(low, high):
        raise ScorebedError(
            f"the design of step {known.step}, got limits that leave none "
            f"({room.reach.words()}), expected one. "
            "Fix: widen the limits or lift them; or finish."
        )
    # What is inside already stays as it is, to the last digit.
    each = zip(wanted, low.tolist(), high.tolist(), strict=True)
    return tuple(value if a <= value <= b else a if value < a else b for value, a, b in each)


def require_room(task: Task, known: State, limits: Limits | None) -> None:
    """Refuse limits that leave no design for some step to come. The pending design stays if the
    limits allow it.
    """
    reach = task.feasible
    if reach is None or limits is None:
        return
    room = Room(reach, limits, len(known.measured) + known.horizon - len(known.records))
    pending = None if known.proposal is None else known.proposal.design
    kept = pending if pending is not None and limits.nearest(pending) == pending else None
    if kept is not None and known.step == known.horizon:
        return
    low, high = _ends(room, known, kept)
    if _empty(low, high):
        raise InvalidValueError(
            "the limits",
            got="some that leave no design for the steps to come",
            expected=f"room for them, with {reach.words()}",
            fix="allow more, or plan fewer steps first.",
        )


def _ends(room: Room, known: State, after: Vector | None = None) -> tuple[np.ndarray, np.ndarray]:
    """[a, b] of the next measurement, or of the one after it if the next is at `after`."""
    used = [record.used for record in known.measured] + ([after] if after is not None else [])
    previous: Any = np.asarray(used[-1] if used else room.reach.start(), jnp.result_type(float))
    step: Any = np.asarray(len(used), np.int32)
    low, high = _interval(room, previous, step)
    return np.asarray(low, np.float64), np.asarray(high, np.float64)


@eqx.filter_jit
def _interval(
    room: Room, previous: Float[Array, " dx"], step: Int[Array, ""]
) -> tuple[Array, Array]:
    return room.interval(previous, step)


def _empty(low: np.ndarray, high: np.ndarray) -> bool:
    return bool(np.any(low > high + ROUNDING * np.maximum(1.0, np.abs(high))))
