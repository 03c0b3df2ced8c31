"""A policy that knows the model: it follows the modes of the posterior from step to step and
designs from the best of them.

    ξ_t = constrain( Σ_h g_h (A_h ẑ + b_h + c_h ⊙ |A_h| σ̂) + g_0 · free )

ẑ is the mode of largest mass of p(z | h_{t−1}) and σ̂ its standard deviations
(`inference/modes.py`); gates g, offsets c and the free part are small networks of (ẑ, log σ̂, how
sure the mode is, the time). The heads A_h ẑ are linear, so that a design is as accurate as the
estimate: in location finding an experiment gains most next to a source, closer than a network that
computes the place from the data can get. They start as the most informative designs for a given z
(`policies/informative_designs.py`).

With many sources a mode gives the places of those that were found, in any order. If there are more
of them than heads, they are sorted in ẑ, the best known first and settled ones last, and head h
starts as the place of the h-th: look next to the best known source until it is settled, then to the
next.

Modes are found, not trained: the path of a gradient through them is one Gauss–Newton step at ẑ, ∂ẑ
= −P⁻¹ ∂(z + Hᵀr), which at a mode is the derivative of the mode itself. For Gaussian outcomes of
independent steps or Markov transitions; the designs of one experiment cost J (2 · iterations + 1) +
1 NLE for every pair of a step and a step before it or itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.inference.modes import (
    DAMPING,
    SAME,
    Data,
    descend,
    gaussian_task,
    log_mass,
    point,
    starts,
    value,
)
from scorebed.nets import MLP
from scorebed.policies.base import Policy
from scorebed.policies.informative_designs import anchors
from scorebed.tasks.base import Task, frozen

WAVES = 6  # of each kind, as features of the time
SETTLED = 0.02  # spread in units of the prior's below which a block needs no further look
LEAD = 6.0  # of the first head's gate among many sources


class ModesMemory(eqx.Module):
    """The history, in arrays whose shapes do not change with t, the modes and λ of every start, and
    what designs are made from.
    """

    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    steps: Int[Array, ""]
    modes: Float[Array, "J k"]
    damping: Float[Array, " J"]
    best: Float[Array, " k"]
    spread: Float[Array, " k"]
    sure: Float[Array, " 2"]


class Modes(Policy):
    """Designs from the best of J modes, through `heads` linear maps. Deterministic."""

    task: Task
    maps: Float[Array, "heads dx k"]
    shifts: Float[Array, "heads dx"]
    gates: MLP
    offsets: MLP
    free: MLP
    particles: int = eqx.field(static=True)
    iterations: int = eqx.field(static=True)
    ranked: int = eqx.field(static=True)
    """Number of exchangeable blocks of z that are sorted in `best`; 1 if nothing is sorted."""

    def __init__(
        self,
        task: Task,
        *,
        particles: int | None = None,
        iterations: int = 2,
        heads: int = 4,
        width: int = 64,
        key: PRNGKeyArray,
    ):
        key_maps, key_gates, key_offsets, key_free = jr.split(key, 4)
        k, dx = task.prior.dim, task.designs.dim
        # Blocks that are places to go: as many coordinates each as a design.
        places = task.exchangeable * dx == k
        self.ranked = task.exchangeable if places and task.exchangeable > heads else 1
        self.task, self.iterations = gaussian_task(task, "the policy 'modes'"), iterations
        self.particles = particles or (4 if self.ranked > 1 else 8)
        inputs = 2 * k + 2 + 2 * WAVES
        self.gates = MLP((inputs, width, heads + 1), jax.nn.silu, key=key_gates)
        if self.ranked > 1:
            self.maps, self.shifts = (
                jnp.eye(k)[: heads * dx].reshape(heads, dx, k),
                jnp.zeros((heads, dx)),
            )
            self.gates = eqx.tree_at(
                lambda net: net.layers[-1].bias, self.gates, replace_fn=lambda b: b.at[0].add(LEAD)
            )
        elif task.exchangeable_steps:
            # The same for all restarts: the most informative designs depend on the task alone.
            self.maps, self.shifts = anchors(task, heads, key=jr.key(0))
        else:
            self.maps, self.shifts = (
                0.3 * jr.normal(key_maps, (heads, dx, k)),
                jnp.zeros((heads, dx)),
            )
        self.offsets = MLP((inputs, width, heads * dx), jax.nn.silu, key=key_offsets)
        self.free = MLP((inputs, width, width, dx), jax.nn.silu, key=key_free)

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> ModesMemory:
        task, k, dtype = self.task, self.task.prior.dim, self.maps.dtype
        return ModesMemory(
            ys=jnp.zeros((task.horizon, task.outcome_dim), dtype),
            xis=jnp.zeros((task.horizon, task.designs.dim), dtype),
            steps=jnp.zeros((), int),
            modes=jnp.asarray(starts(self.particles, k), dtype),
            damping=jnp.full(self.particles, DAMPING, dtype),
            best=jnp.zeros(k, dtype),
            spread=jnp.ones(k, dtype),
            sure=jnp.zeros(2, dtype),
        )

    def design(self, memory: ModesMemory, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        del noise
        seen = jax.lax.stop_gradient(memory.best)
        phase = (
            jnp.pi
            * memory.steps.astype(seen.dtype)
            / self.task.horizon
            * jnp.arange(1, WAVES + 1, dtype=seen.dtype)
        )
        waves = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)])
        features = jnp.concatenate([seen, jnp.log(memory.spread), memory.sure, waves])
        gate = jax.nn.softmax(self.gates(features))
        reach = jax.lax.stop_gradient(jnp.sqrt(self.maps**2 @ memory.spread**2))
        offsets = self.offsets(features).reshape(self.shifts.shape)
        heads = self.maps @ memory.best + self.shifts + offsets * reach
        return self.task.designs.constrain(gate[:-1] @ heads + gate[-1] * self.free(features))

    def update(
        self, memory: ModesMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> ModesMemory:
        t, task = memory.steps, frozen(self.task)
        ys, xis = memory.ys.at[t].set(y), memory.xis.at[t].set(xi)
        data = Data(ys, task.states_before(ys), xis, jnp.arange(task.horizon) <= t)
        still = jax.lax.stop_gradient(data)
        # λ restarts above its floor: the newest outcome may have moved everything.
        restart = jnp.maximum(memory.damping, DAMPING**2)
        modes, damping = jax.lax.stop_gradient(
            descend(task, memory.modes, restart, still, iterations=self.iterations)
        )
        points = jax.vmap(lambda z: point(task, z, still))(modes)
        mass = jax.vmap(log_mass)(points)
        chosen = mass.argmax()
        mode = modes[chosen]
        covariance = jnp.linalg.inv(points.curvature[chosen])
        near = (jnp.abs(modes - mode).max(1) < SAME).astype(mass.dtype)
        sure = jnp.stack([jax.nn.softmax(mass) @ near, points.value[chosen] / task.horizon])
        spread = jnp.sqrt(jnp.diag(covariance))
        best = mode - jax.lax.stop_gradient(covariance) @ jax.grad(lambda z: value(task, z, data))(
            mode
        )
        best, spread = by_rank(best, spread, self.ranked)
        return ModesMemory(
            ys, xis, t + 1, modes, damping, best, *jax.lax.stop_gradient((spread, sure))
        )

    @property
    def max_steps(self) -> int:
        return self.task.horizon

    @property
    def design_nle(self) -> int:
        T = self.task.horizon
        return (self.particles * (2 * self.iterations + 1) + 1) * T * (T + 1) // 2


def by_rank(
    best: Float[Array, " k"], spread: Float[Array, " k"], parts: int
) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Both with the best known block first; settled blocks come last."""
    size = jnp.sqrt((spread.reshape(parts, -1) ** 2).mean(1))
    order = jnp.argsort(jnp.where(size < SETTLED, size.max() + size, size))
    best, spread = (a.reshape(parts, -1)[order].reshape(-1) for a in (best, spread))
    return best, spread
