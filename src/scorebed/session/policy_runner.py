"""The policy of an experiment: which one it is, by hash; a refined one as bytes; and the next
design from what was measured, by `init`, `design` and `update` as in `rollout`.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from scorebed.errors import ConflictError, ScorebedError
from scorebed.keys import named
from scorebed.policies.base import Memory, Policy
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.durable import explained
from scorebed.runs.load import Run
from scorebed.runs.serialisation import decode_leaves, encode_leaves
from scorebed.session.events import ExperimentState, Vector
from scorebed.session.measurements import AlongHistory, Pair, pairs_of
from scorebed.session.store import Experiment, Store


class PolicyRunner:
    """A policy in one experiment. The noise of its steps follows from `seed`: that of
    `simulate(task, policy, key=jr.key(seed))`.

    `horizon` is that of the task. In a longer experiment each further `horizon` steps have noise
    from another key, so that the noise of the first ones stays. Not for several threads at once."""

    def __init__(self, policy: Policy, *, horizon: int, seed: int):
        self.policy, self.horizon, self.seed = policy, horizon, seed
        # Whatever goes into a program is NumPy's: every operation of JAX outside of one costs as
        # much as the program.
        self._noise: dict[int, Any] = {}
        self._memories: AlongHistory[Memory] = AlongHistory(
            lambda: _init(self.policy), self._remember
        )

    def design(self, state: ExperimentState) -> Vector:
        """What the policy asks for at the next step."""
        if self.policy.lacks_designs(len(state.measured) + 1):
            raise ScorebedError(
                f"the design of step {state.step}, got a policy whose {len(state.measured)} "
                "designs are all measured, expected one more. "
                "Fix: refine now, which finds designs for the remaining steps."
            )
        row = self._row(state.step - 1)
        try:
            memory = self._memories.values(pairs_of(state.records))[-1]
            xi = np.asarray(_design(self.policy, memory, row), np.float64)
        except eqx.EquinoxRuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise ScorebedError(
                f"the design of step {state.step}, got an error from the policy: {reason}"
            ) from None
        if not np.isfinite(xi).all():
            raise ScorebedError(
                f"the design of step {state.step}, got {xi.tolist()} from the policy, expected "
                "finite numbers. "
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

    def noise(self, steps: int) -> np.ndarray:
        """The policy's noise in the first steps of this experiment, a row each."""
        return np.stack([self._row(index) for index in range(steps)])

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


class PolicyRunners:
    """The runners of one experiment: of the run's policy, and of those refined from it. Former ones
    are kept for an undo.
    """

    def __init__(self, run: Run, store: Store, seed: int):
        self._run, self._store, self._seed = run, store, seed
        self._runners: dict[str | None, PolicyRunner] = {}

    def at(self, state: ExperimentState) -> PolicyRunner:
        """The runner of the policy in force."""
        refinement = state.refinement
        name = None if refinement is None else refinement.policy
        if name not in self._runners:
            policy = self._run.policy
            if refinement is not None:
                stored = self._store.kept(refinement.policy)
                policy = decode_policy(stored, self._run, refinement.horizon)
            horizon = self._run.task.horizon
            self._runners[name] = PolicyRunner(policy, horizon=horizon, seed=self._seed)
        return self._runners[name]


# ---- which policy


def policy_sha256(run: Run) -> str:
    """The hash of the policy's file, or of the configuration if no training wrote one."""
    path = run.path / "policy-0.safetensors"
    if not path.exists():
        path = run.path / "config.toml"
    with explained("reading", path):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def require_same(run: Run, experiment: Experiment) -> None:
    """Refuse to go on with another task or policy than the experiment began with."""
    for what, began, now in (
        ("task", experiment.fingerprint, fingerprint(run.task)),
        ("policy", experiment.policy_sha256, policy_sha256(run)),
    ):
        if began != now:
            raise ConflictError(
                f"the run {run.path} for experiment '{experiment.name}'",
                got=f"another {what} ({now[:16]})",
                expected=f"the {what} that it began with, of run {experiment.run} ({began[:16]})",
                fix="open it with that run, or begin another experiment.",
            )


# ---- refined policies as bytes


def encode_policy(policy: Policy, fingerprint: str) -> bytes:
    """The arrays of a policy in the format of safetensors, with the hash of its task."""
    return encode_leaves(eqx.filter(policy, eqx.is_array), {"task": fingerprint})


def decode_policy(data: bytes, run: Run, horizon: int) -> Policy:
    """The policy of a run as it was refined for `horizon` steps; `LeafMismatchError` if the arrays
    do not fit.
    """
    full = run.policy.extended(max(horizon, run.task.horizon), key=jr.key(0))
    arrays, others = eqx.partition(full, eqx.is_array)
    leaves = decode_leaves(data, arrays, where="the refined policy")
    policy: Policy = eqx.combine(leaves, others)
    return policy


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
