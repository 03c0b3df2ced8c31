"""The policy at the bench: the next design from what was measured, by `init`, `design` and `update`
as in `rollout`.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.policies.base import Memory, Policy
from scorebed.session.data import Chain, Pair, pairs_of
from scorebed.session.state import State, Vector
from scorebed.session.table import lacks_designs


class Actor:
    """A policy in one experiment. The noise of its steps follows from `seed`: that of
    `simulate(task, policy, key=jr.key(seed))`.

    `horizon` is that of the task. Where an experiment is longer, each further `horizon` steps have
    noise of their own key: what was drawn for the first ones stays. Not for several threads at
    once."""

    def __init__(self, policy: Policy, *, horizon: int, seed: int):
        self.policy, self.horizon, self.seed = policy, horizon, seed
        # Everything that goes into a program is NumPy's: every operation of JAX outside of one
        # costs as much as the program.
        self._noise: dict[int, Any] = {}
        self._memories: Chain[Memory] = Chain(lambda: _init(self.policy), self._remember)

    def design(self, known: State) -> Vector:
        """What the policy asks for at the next step."""
        self._require_design(known)
        row = self._row(known.step - 1)
        try:
            memory = self._memories.reach(pairs_of(known.records))[-1]
            xi = np.asarray(_design(self.policy, memory, row), np.float64)
        except eqx.EquinoxRuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise ScorebedError(
                f"the design of step {known.step}, got an error of the policy: {reason}"
            ) from None
        if not np.isfinite(xi).all():
            raise ScorebedError(
                f"the design of step {known.step}, got {xi.tolist()} from the policy, expected "
                f"finite numbers. "
                "Fix: check the outcomes so far and correct the one that is out of range."
            )
        return tuple(map(float, xi))

    def warm(self, outcome_dim: int) -> Vector:
        """Compile what `design` will need; gives the first design."""
        memory = _init(self.policy)
        xi = _design(self.policy, memory, self._row(0))
        first = tuple(map(float, np.asarray(xi, np.float64)))
        _update(self.policy, memory, _numbers(first), _numbers((0.0,) * outcome_dim))
        return first

    def _require_design(self, known: State) -> None:
        if lacks_designs(self.policy, len(known.measured) + 1):
            raise ScorebedError(
                f"the design of step {known.step}, got a policy whose {len(known.measured)} "
                f"designs are all measured, "
                "expected one more. Fix: refine now, which finds designs for the steps that are "
                "left."
            )

    def _row(self, index: int) -> Any:
        block, row = divmod(index, self.horizon)
        if block not in self._noise:
            key = named(jr.key(self.seed), "noise", "policy")
            drawn = self.policy.sample_noise(
                self.horizon, key=named(key, "block", block) if block else key
            )
            self._noise[block] = np.asarray(drawn)
        return self._noise[block][row]

    def _remember(self, memory: Memory, pairs: Sequence[Pair]) -> Memory:
        used, y = pairs[-1]
        return _update(self.policy, memory, _numbers(used), _numbers(y))


def _numbers(values: Vector) -> Any:
    return np.asarray(values, jnp.result_type(float))


@eqx.filter_jit
def _init(policy: Policy) -> Memory:
    return policy.init()


@eqx.filter_jit
def _design(policy: Policy, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
    return policy.design(memory, noise)


@eqx.filter_jit
def _update(
    policy: Policy, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
) -> Memory:
    return policy.update(memory, xi, y)
