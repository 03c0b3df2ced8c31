"""A policy that plans to the end of the experiment, and again after every outcome (a receding
horizon).

Before the experiment it finds a few dozen sequences of designs that are expected to tell most about
z (`policies/informative_plans.py`). After every outcome it finds the mode ẑ of the posterior and
its curvature P there, simulates the rest of the experiment from the state that it is in, for a few
draws of z ~ N(ẑ, P⁻¹) and of the noise, and goes on with the rest of the sequence that is expected
to tell most by the end:

    J(ξ_{t+1:T}) = 1/S Σ_s ½ log det(P + Σ_{r>t} H_rᵀ H_r)   along the simulation of draw s

among what it had, the same in mirror image or a step earlier or later, and all sequences found
before the experiment; then some steps uphill from the best.

In a driven system it is the whole sequence of inputs that counts, so that greed, which looks one
step ahead, is poor there, while feedback is worth something: noise pushes the system now to this
side and now to the other.

Nothing is trained, and nothing is random once the policy is made: the draws of z and ε are made
with it. Memory has a fixed size. For Gaussian outcomes of independent steps or Markov transitions.
Cost in NLE, each an evaluation of the mean with its derivatives: `design_nle`, and once
`search_nle`. When wrong: posteriors of several modes, and systems whose noise decides more than S
simulations show. It does not plan for what it will learn on the way."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, require
from scorebed.inference.modes import Data, descend, gaussian_task, point
from scorebed.policies.base import Policy
from scorebed.policies.informative_plans import (
    designs_at,
    information,
    informative_plans,
    inside,
    plans_nle,
)
from scorebed.policies.static import DESIGNED_TOGETHER, no_further_designs
from scorebed.tasks.base import State, Task, frozen

ITERATIONS, DAMPING = 2, 1e-3  # of Levenberg–Marquardt from the last mode
LENGTH, LAST = 0.3, 0.1  # root mean square of the first step uphill; the last relative to it
SHIFTS = (1, -1)  # steps by which the present plan may be moved
GROUP = 8  # sequences at once


class RecedingMemory(eqx.Module):
    """The history, in arrays whose shapes do not change with t, the state of the experiment, the
    posterior N(z, P⁻¹), and the rest of the plan, next design first.
    """

    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    steps: Int[Array, ""]
    state: State
    z: Float[Array, " k"]
    curvature: Float[Array, "k k"]
    plan: Float[Array, "T dx"]


class RecedingHorizon(Policy):
    """Designs by planning to the end, again after every outcome. Deterministic; nothing is trained.

    Arguments:
        task: the experiment.
        sequences: of designs, found before the experiment.
        draws: simulations of the rest of the experiment, S.
        rounds: steps uphill after every outcome.
        plans: sequences of designs to choose among, in half-widths of the box; None searches for
            them.
        key: the random key of the search and of the draws.
    """

    task: Task
    plans: Float[Array, "K T dx"]
    z_draws: Float[Array, "S k"]
    noise_draws: Float[Array, "S T dn"]
    rounds: int = eqx.field(static=True)
    searched: bool = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        sequences: int = 32,
        draws: int = 8,
        rounds: int = 5,
        plans: Float[Array, "K T dx"] | None = None,
        key: PRNGKeyArray,
    ):
        self.task = _plannable(task)
        require(
            min(sequences, rounds) >= 1 and draws >= 2 and draws % 2 == 0,
            "the sizes of the policy 'receding-horizon'",
            got=f"{sequences=}, {draws=}, {rounds=}",
            expected="at least one sequence and round, and an even number of draws",
            fix="leave them out for the usual ones.",
        )
        key_plans, key_z, key_noise = jr.split(key, 3)
        half = jr.normal(key_z, (draws // 2, task.prior.dim))
        self.z_draws = jnp.concatenate([half, -half])
        self.noise_draws = jr.normal(key_noise, (draws, task.horizon, task.noise_dim))
        self.rounds, self.searched = rounds, plans is None
        self.plans = informative_plans(task, sequences, key=key_plans) if plans is None else plans

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> RecedingMemory:
        task, k, dtype = self.task, self.task.prior.dim, self.plans.dtype
        z = jnp.zeros(k, dtype)
        return RecedingMemory(
            ys=jnp.zeros((task.horizon, task.outcome_dim), dtype),
            xis=jnp.zeros((task.horizon, task.designs.dim), dtype),
            steps=jnp.zeros((), int),
            state=task.initial(task.prior.from_latent(z)),
            z=z,
            curvature=jnp.eye(k, dtype=dtype),
            plan=self.plans[0],
        )

    def design(self, memory: RecedingMemory, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        del noise
        return designs_at(self.task.designs, memory.plan[0])

    def update(
        self, memory: RecedingMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> RecedingMemory:
        policy, memory, xi, y = jax.lax.stop_gradient((self, memory, xi, y))
        task, t = frozen(self.task), memory.steps
        ys, xis = memory.ys.at[t].set(y), memory.xis.at[t].set(xi)
        data = Data(ys, task.states_before(ys), xis, jnp.arange(task.horizon) <= t)
        damping = jnp.full(1, DAMPING, y.dtype)
        z = descend(task, memory.z[None], damping, data, iterations=ITERATIONS)[0][0]
        state = task.advance(task.prior.from_latent(z), memory.state, xi, y)
        plan = _moved(memory.plan, 1)
        after = RecedingMemory(ys, xis, t + 1, state, z, point(task, z, data).curvature, plan)
        return eqx.tree_at(lambda memory: memory.plan, after, policy.replanned(after))

    def replanned(self, memory: RecedingMemory) -> Float[Array, "T dx"]:
        """The best rest of a plan that is found from here."""
        space, here = self.task.designs, memory.plan
        others = jax.vmap(lambda plan: _moved(plan, memory.steps))(self.plans)
        candidates = jnp.stack([here, -here, *(_moved(here, shift) for shift in SHIFTS)])
        candidates = inside(space, jnp.concatenate([candidates, others]))
        values = jax.lax.map(lambda vs: self.outlook(memory, vs), candidates, batch_size=GROUP)
        best = candidates[values.argmax()]

        def uphill(vs: Array, length: Array) -> tuple[Array, None]:
            slope = jnp.nan_to_num(jax.grad(lambda vs: self.outlook(memory, vs))(vs))
            size = jnp.sqrt((slope**2).mean()) + jnp.finfo(slope.dtype).tiny
            return inside(space, vs + length * slope / size), None

        lengths = LENGTH * jnp.linspace(1, LAST, self.rounds, dtype=best.dtype)
        climbed, _ = jax.lax.scan(uphill, best, lengths)
        return jnp.where(self.outlook(memory, climbed) > values.max(), climbed, best)

    def outlook(self, memory: RecedingMemory, vs: Float[Array, "T dx"]) -> Scalar:
        """J of the rest of a plan. S (T − t) NLE."""
        task, T = frozen(self.task), self.task.horizon
        left = jnp.arange(T) < T - memory.steps
        upper = jnp.linalg.cholesky(memory.curvature).T
        spread = jax.scipy.linalg.solve_triangular(upper, self.z_draws.T.astype(vs.dtype))

        def one(z: Array, noise: Array) -> Scalar:
            return information(task, z, memory.state, memory.curvature, vs, noise, left)

        found = jax.vmap(one)(memory.z + spread.T, self.noise_draws.astype(vs.dtype)).mean()
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    @property
    def trainable(self) -> bool:
        return False

    @property
    def max_steps(self) -> int:
        return self.task.horizon

    @property
    def design_nle(self) -> int:
        T, S = self.task.horizon, len(self.z_draws)
        simulated = S * (2 + len(SHIFTS) + len(self.plans) + self.rounds + 1)
        return (2 * ITERATIONS + 1) * T * (T + 1) // 2 + simulated * T * (T - 1) // 2

    @property
    def search_nle(self) -> int:
        return plans_nle(self.task, len(self.plans)) if self.searched else 0

    @property
    def without_feedback(self) -> Float[Array, "T dx"]:
        return designs_at(self.task.designs, self.plans[0])

    @property
    def beyond_training(self) -> str:
        return no_further_designs(self.max_steps)

    @property
    def short_of_training(self) -> str:
        return DESIGNED_TOGETHER


def _moved(plan: Float[Array, "T dx"], steps: Int[Array, ""] | int) -> Float[Array, "T dx"]:
    """The plan so many steps later, or earlier; its last design or its first is repeated."""
    rows = jnp.clip(jnp.arange(len(plan)) + steps, 0, len(plan) - 1)
    return plan[rows]


def _plannable(task: Task) -> Task:
    """The task, refused unless its outcomes are Gaussian and designs are numbers."""
    if task.designs.named:
        raise InvalidValueError(
            "a task for the policy 'receding-horizon'",
            got="designs with names to choose among",
            expected="designs that are numbers",
            fix="use the policy belief, dad, gru, attention, plan or static.",
        )
    return gaussian_task(task, "the policy 'receding-horizon'")
