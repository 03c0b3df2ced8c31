"""The policy at the bench: the next design from what was measured, by `init`, `design` and `update` as in `rollout`."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.policies.base import Memory, Policy
from scorebed.session.state import State, Vector


class Actor:
    """A policy in one experiment. The noise of its steps follows from `seed`: that of `simulate(task, policy, key=jr.key(seed))`.

    Memories are kept with the data that made them, so that only what an undo or a correction changed is done again. Not for
    several threads at once.
    """

    def __init__(self, policy: Policy, *, horizon: int, seed: int):
        self.policy, self.horizon, self.seed = policy, horizon, seed
        self._noise: Float[Array, "T n"] | None = None
        self._memories: list[tuple[tuple[Vector, Vector] | None, Memory]] = []

    def design(self, known: State) -> Vector:
        """What the policy proposes for the next step."""
        row = self._rows()[known.step - 1]
        try:
            xi = np.asarray(_design(self.policy, self._memory(known), row), np.float64)
        except eqx.EquinoxRuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise ScorebedError(f"the design of step {known.step}, got an error of the policy: {reason}") from None
        if not np.isfinite(xi).all():
            raise ScorebedError(
                f"the design of step {known.step}, got {xi.tolist()} from the policy, expected finite numbers. "
                "Fix: check the outcomes so far and correct the one that is out of range."
            )
        return tuple(map(float, xi))

    def warm(self, outcome_dim: int) -> Vector:
        """Compile what `design` will need; gives the first design."""
        memory = _init(self.policy)
        xi = _design(self.policy, memory, self._rows()[0])
        _update(self.policy, memory, xi, jnp.zeros(outcome_dim, xi.dtype))
        return tuple(map(float, np.asarray(xi, np.float64)))

    def _rows(self) -> Float[Array, "T n"]:
        if self._noise is None:
            key = named(jr.key(self.seed), "noise", "policy")
            self._noise = self.policy.sample_noise(self.horizon, key=key)
        return self._noise

    def _memory(self, known: State) -> Memory:
        """The memory of the measured steps."""
        pairs = [(r.used, r.y) for r in known.measured if r.used is not None and r.y is not None]
        if not self._memories:
            self._memories.append((None, _init(self.policy)))
        same = 1
        while same <= min(len(pairs), len(self._memories) - 1) and self._memories[same][0] == pairs[same - 1]:
            same += 1
        del self._memories[same:]
        dtype = jnp.result_type(float)
        for used, y in pairs[same - 1 :]:
            # Numbers of Python have more digits; the policy sees them in its own precision, as in training.
            xi_, y_ = (jnp.asarray(np.asarray(values, np.float64), dtype) for values in (used, y))
            self._memories.append(((used, y), _update(self.policy, self._memories[-1][1], xi_, y_)))
        return self._memories[-1][1]


@eqx.filter_jit
def _init(policy: Policy) -> Memory:
    return policy.init()


@eqx.filter_jit
def _design(policy: Policy, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
    return policy.design(memory, noise)


@eqx.filter_jit
def _update(policy: Policy, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
    return policy.update(memory, xi, y)
