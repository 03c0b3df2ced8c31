"""The myopic designer: at every step the design of largest one-step expected information gain under
the posterior so far.

    ξ_t = argmax_ξ  E_{θ, y} [ log p(y | θ, ξ) − log Σ_m w_m p(y | θ_m, ξ) ],
    θ ~ p(θ | h_{t−1}),   y ~ p(y | θ, ξ)

with the posterior p(θ | h_{t−1}) as N weighted particles θ_m = f(z_m), which are both the
distribution of θ and the marginal of y. Nothing is trained and nothing is planned beyond the next
outcome: a baseline for trained policies.

The search has one round over the whole design space and several around the best design so far, with
steps that shrink. All designs of a step are scored on the same θ and the same noise, so their
differences are far more accurate than their values.

New outcomes reweigh the particles. When the effective sample size falls below half, the particles
are carried from the last history at which they had equal weights to the present one by tempered SMC
(`inference/smc.py`), which moves them too.

The noise of the policy makes the search: a row per step, whose bits become a random key. `update`
has no noise to use, so the randomness of the particles (where they start, resampling, moves) is
drawn when the policy is made and belongs to it: the posterior of one designer is a function of the
history, the same in every repetition of an experiment.

Cost: C (1 + rounds) · outer · N + N NLE a step, and at most N t (1 + levels · moves) more when the
particles are renewed at step t. When wrong: the particles can tell apart at most N values of θ, so
a step's gain is estimated below log N, and a gain near that is too low; with tens of parameters
some hundreds of particles and a few moves are too narrow a posterior; a search in many design
coordinates needs more candidates; gradients through the designs are zero."""

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.importance import NEGLIGIBLE
from scorebed.inference.resampling import effective_sample_size, systematic_resample
from scorebed.inference.smc import TARGET, require_settings, update_smc
from scorebed.policies.base import Policy
from scorebed.rollout import price
from scorebed.tasks.base import State, Task, require_data_states
from scorebed.tasks.spaces import Space

PARTICLES = 256
OUTER = 128
CANDIDATES = 16
ROUNDS = 2
MOVES = 4
LEVELS = 16
# In units of the design space: how far the first round reaches where there are no limits, and the
# first step around a design.
SPREAD = 1.5
STEP = 0.3
SHRINK = 0.3

IMPOSSIBLE = (
    "an outcome for the myopic designer, got one that no particle of its posterior can have made "
    "(every likelihood is zero, or one is not a number), expected a finite outcome that the model "
    "allows. Fix: check its units, and the task's log_prob."
)
TOO_LONG = (
    "an outcome for the myopic designer, got one after the last step, expected at most the {} of "
    "the task's horizon. Fix: raise the horizon."
)
NO_GAIN = (
    "the designs of the myopic designer, got NaN as the information gain of all of them, expected "
    "a number for at least one. Fix: check the task's outcome and log_prob within its design space."
)


class ParticleBelief(eqx.Module):
    """p(θ | h_t) as weighted particles, and the history h_t, in arrays whose shapes do not change
    with t.

    The particles have equal weights under the first `known` outcomes; `log_weights` is the
    likelihood of those after it."""

    z: Float[Array, "N k"]
    theta: Float[Array, "N k"]
    log_weights: Float[Array, " N"]
    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    known: Int[Array, ""]
    observed: Int[Array, ""]
    passes: Int[Array, ""]

    @property
    def weights(self) -> Float[Array, " N"]:
        """They sum to one."""
        return jax.nn.softmax(self.log_weights)


class Myopic(Policy):
    """Greedy in the information gain of the next outcome. For tasks with independent steps or
    Markov transitions.

    `start` are the particles of the prior and `salt` seeds their later moves; both are drawn once,
    from `key`."""

    task: Task
    start: Float[Array, "N k"]
    salt: Float[Array, " 2"]
    outer: int = eqx.field(static=True)
    candidates: int = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)
    levels: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        particles: int = PARTICLES,
        outer: int = OUTER,
        candidates: int = CANDIDATES,
        rounds: int = ROUNDS,
        moves: int = MOVES,
        levels: int = LEVELS,
        key: PRNGKeyArray,
    ):
        fix = "write the task as Markov, with the whole state as its outcome."
        require_data_states(task, "the myopic designer", fix=fix)
        require_settings(particles, moves, TARGET, levels)
        require(
            outer >= 1 and candidates >= 2 and rounds >= 0,
            "the search of the myopic designer",
            got=f"outer={outer}, candidates={candidates}, rounds={rounds}",
            expected="at least one outer sample, two candidates and no negative rounds",
            fix=f"leave them out for {OUTER}, {CANDIDATES} and {ROUNDS}.",
        )
        key_start, key_salt = jr.split(key)
        self.task = task
        self.start = jr.normal(key_start, (task.prior.dim * particles,)).reshape(-1, particles).T
        self.salt = jr.uniform(key_salt, (2,))
        self.outer, self.candidates, self.rounds, self.moves, self.levels = (
            outer,
            candidates,
            rounds,
            moves,
            levels,
        )

    @property
    def trainable(self) -> bool:
        return False

    @property
    def not_exported(self) -> str:
        return "myopic designs, which search with the task's likelihood at every step"

    @property
    def obeys_constraint(self) -> bool:
        return True

    @property
    def max_steps(self) -> int:
        return self.task.horizon

    @property
    def beyond_training(self) -> str:
        return self.short_of_training

    @property
    def short_of_training(self) -> str:
        return "The myopic designer looks one step ahead, whatever the number of steps."

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 2"]:
        # Two uniform numbers carry 46 random bits even in single precision. Arbitrary bits read as
        # floats would not do: some are NaN or denormal, and need not survive a copy.
        return jr.uniform(key, (horizon, 2))

    def init(self) -> ParticleBelief:
        T, dtype = self.task.horizon, self.start.dtype
        zero = jnp.zeros((), int)
        return ParticleBelief(
            self.start,
            jax.vmap(self.task.prior.from_latent)(self.start),
            jnp.zeros(len(self.start), dtype),
            jnp.zeros((T, self.task.outcome_dim), dtype),
            jnp.zeros((T, self.task.designs.dim), dtype),
            known=zero,
            observed=zero,
            passes=zero,
        )

    def design(self, memory: ParticleBelief, noise: Float[Array, " 2"]) -> Float[Array, " dx"]:
        memory, noise = jax.lax.stop_gradient((memory, noise))
        key_draws, key_past, key_moves = jr.split(_key_of(noise), 3)
        draws = self._draws(memory, key=key_draws)
        shape = (2 + self.rounds, self.candidates, self.task.designs.dim)
        wide, *moves = _normals(shape, memory.xis.dtype, key=key_moves)
        first = self._first_candidates(memory, wide, STEP * moves[0], key=key_past)

        def search(
            best: tuple[Scalar, Float[Array, " dx"]], step: tuple[Scalar, Float[Array, "C dx"]]
        ) -> tuple[tuple[Scalar, Float[Array, " dx"]], None]:
            scale, moves = step
            xis = jnp.where(
                scale > 0,
                self._allowed(memory, _around(self.task.designs, best[1], scale * moves)),
                first,
            )
            gains = jax.lax.map(
                lambda xi: self._gain(memory, xi, *draws) - price(self.task, xi[None]), xis
            )
            gains = jnp.where(jnp.isnan(gains), -jnp.inf, gains)
            chosen = gains.argmax()
            wins = gains[chosen] > best[0]
            return (
                jnp.where(wins, gains[chosen], best[0]),
                jnp.where(wins, xis[chosen], best[1]),
            ), None

        # The first round is marked by a scale of zero: one loop, since two would take twice as long
        # to compile.
        scales = jnp.asarray([0.0, *(STEP * SHRINK**r for r in range(self.rounds))], first.dtype)
        start = (jnp.full((), -jnp.inf, first.dtype), first[0])
        gain, xi = jax.lax.scan(search, start, (scales, jnp.stack(moves)))[0]
        return eqx.error_if(xi, jnp.isneginf(gain), NO_GAIN)

    def update(
        self, memory: ParticleBelief, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> ParticleBelief:
        memory, xi, y = jax.lax.stop_gradient((memory, xi, y))
        over_particles = jax.vmap(self.task.log_prob, in_axes=(None, 1, None, None))
        log_weights = memory.log_weights + over_particles(
            y, memory.theta.T, self._state(memory), xi
        )
        # The largest is NaN if any is.
        log_weights = eqx.error_if(log_weights, ~jnp.isfinite(log_weights.max()), IMPOSSIBLE)
        t = eqx.error_if(
            memory.observed,
            memory.observed >= self.task.horizon,
            TOO_LONG.format(self.task.horizon),
        )
        ys, xis = memory.ys.at[t].set(y), memory.xis.at[t].set(xi)
        memory = ParticleBelief(
            memory.z, memory.theta, log_weights, ys, xis, memory.known, t + 1, memory.passes
        )
        # A loop of one round or none, where a `cond` would do: under `vmap` a `cond` computes both
        # branches always, a loop computes nothing if no trajectory of the batch is in need.
        return jax.lax.while_loop(_degenerate, lambda belief: self._renew(belief), memory)

    def eig(self, memory: ParticleBelief, xi: Float[Array, " dx"], *, key: PRNGKeyArray) -> Scalar:
        """Information gain to be expected of one outcome at ξ, estimated as the search does it.
        outer · N NLE.
        """
        return self._gain(memory, xi, *self._draws(memory, key=key))

    @property
    def nle_lower(self) -> int:
        """Likelihood evaluations of designing one experiment of the task's horizon, if the
        particles are never renewed.
        """
        return self.task.horizon * self._nle_per_step

    @property
    def nle_upper(self) -> int:
        """The same if they are renewed at every step and through all levels."""
        T, passes = self.task.horizon, 1 + self.levels * self.moves
        return self.nle_lower + len(self.start) * passes * (T * (T + 1) // 2)

    def nle(self, memory: ParticleBelief) -> int:
        """What an experiment has cost so far, exactly; not inside compiled code.

        As elsewhere, what a batch computes for members that need it not, and padding, is not
        counted."""
        return int(memory.observed) * self._nle_per_step + len(self.start) * int(memory.passes)

    @property
    def _nle_per_step(self) -> int:
        return len(self.start) * (self.candidates * (1 + self.rounds) * self.outer + 1)

    def _state(self, memory: ParticleBelief) -> State:
        """The state before the next step."""
        return self.task.state_before(memory.ys, memory.observed)

    def _draws(
        self, memory: ParticleBelief, *, key: PRNGKeyArray
    ) -> tuple[Int[Array, " n"], Float[Array, "n dy"]]:
        """Numbers of the particles that make the outcomes, and the outcomes' noise."""
        key_theta, key_noise = jr.split(key)
        chosen = systematic_resample(key_theta, memory.weights, self.outer)
        return chosen, _normals((self.outer, self.task.outcome_dim), memory.ys.dtype, key=key_noise)

    def _gain(
        self,
        memory: ParticleBelief,
        xi: Float[Array, " dx"],
        chosen: Int[Array, " n"],
        noise: Float[Array, "n dy"],
    ) -> Scalar:
        """The nested Monte Carlo estimate on given draws, particles innermost."""
        state = self._state(memory)
        ys = jax.vmap(self.task.outcome, in_axes=(0, None, None, 0))(
            memory.theta[chosen], state, xi, noise
        )
        over_particles = jax.vmap(self.task.log_prob, in_axes=(None, 1, None, None))
        each = jax.vmap(over_particles, in_axes=(0, None, None, None))(
            ys, memory.theta.T, state, xi
        )
        log_p0 = jnp.take_along_axis(each, chosen[:, None], axis=1)[:, 0]
        joint = each + jax.nn.log_softmax(memory.log_weights)
        top = joint.max(1)
        marginal = top + jnp.log(jnp.exp(jnp.maximum(joint - top[:, None], NEGLIGIBLE)).sum(1))
        return (log_p0 - marginal).mean()

    def _first_candidates(
        self,
        memory: ParticleBelief,
        wide: Float[Array, "C dx"],
        moves: Float[Array, "C dx"],
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "C dx"]:
        """Half of them all over the space, with the corners of a box; half around designs of the
        past, once there are any.
        """
        space, half = self.task.designs, self.candidates // 2
        pick = jr.uniform(key, (half,), moves.dtype) * memory.observed.astype(moves.dtype)
        near = _around(space, memory.xis[pick.astype(int)], moves[:half])
        xis = _all_over(space, wide)
        if self.task.feasible is not None:
            place = functools.partial(
                self.task.feasible.place, previous=self._previous(memory), step=memory.observed
            )
            xis = jax.vmap(place)(xis)
        near = self._allowed(memory, near)
        return xis.at[-half:].set(jnp.where(memory.observed > 0, near, xis[-half:]))

    def _previous(self, memory: ParticleBelief) -> Float[Array, " dx"]:
        """The last design, or what a constraint says was before the first."""
        start = (
            memory.xis[0]
            if self.task.feasible is None
            else self.task.feasible.start().astype(memory.xis.dtype)
        )
        return jnp.where(memory.observed > 0, memory.xis[memory.observed - 1], start)

    def _allowed(self, memory: ParticleBelief, xis: Float[Array, "C dx"]) -> Float[Array, "C dx"]:
        """Designs moved into the range that a constraint leaves."""
        if self.task.feasible is None:
            return self.task.designs.nearest(xis)
        return jnp.clip(xis, *self.task.feasible.interval(self._previous(memory), memory.observed))

    def _renew(self, memory: ParticleBelief) -> ParticleBelief:
        """Particles of equal weights from those of the history `known`."""
        after = update_smc(
            self.task,
            memory.z,
            memory.ys,
            memory.xis,
            known=memory.known,
            observed=memory.observed,
            moves=self.moves,
            levels=self.levels,
            key=jr.fold_in(_key_of(self.salt), memory.observed),
        )
        passes = memory.passes + after.passes * after.steps
        even, observed = jnp.zeros_like(memory.log_weights), memory.observed
        return ParticleBelief(
            after.z, after.theta, even, memory.ys, memory.xis, observed, observed, passes
        )


def _degenerate(memory: ParticleBelief) -> Array:
    """Whether the particles are worth less than half of their number. Never with equal weights."""
    return effective_sample_size(memory.log_weights) < TARGET * len(memory.log_weights)


def _key_of(numbers: Float[Array, " n"]) -> PRNGKeyArray:
    """A random key from the bits of random numbers."""
    words = jax.lax.bitcast_convert_type(numbers, jnp.uint32).reshape(-1)
    return jax.lax.scan(lambda key, word: (jr.fold_in(key, word), None), jr.key(0), words)[0]


def _normals(shape: tuple[int, ...], dtype: jnp.dtype, *, key: PRNGKeyArray) -> Float[Array, "..."]:
    """N(0, 1). Drawn as one long row: a draw with a short last axis takes XLA several times as long
    to compile.
    """
    return jr.normal(key, (math.prod(shape),), dtype).reshape(shape)


def _all_over(space: Space, normals: Float[Array, "n dx"]) -> Float[Array, "n dx"]:
    """Designs spread over the space: uniform in a box, with its corners if they are few; Gaussian
    without limits.
    """
    if not space.bounded:
        return space.constrain(SPREAD * normals)
    if space.listed:
        return space.evenly(ndtr(normals))
    low, high = (jnp.asarray(end, normals.dtype) for end in space.limits)
    xis = low + (high - low) * ndtr(normals)
    if 2 * 2**space.dim > len(xis):
        return xis
    corners = np.asarray(list(itertools.product(*zip(*space.limits, strict=True))))
    return xis.at[: len(corners)].set(jnp.asarray(corners, xis.dtype))


def _around(
    space: Space, xi: Float[Array, "*n dx"], moves: Float[Array, "n dx"]
) -> Float[Array, "n dx"]:
    """ξ moved by `moves`, in units of the space; what leaves a box stops at its limits."""
    if not space.bounded:
        return space.constrain(space.unconstrain(xi) + moves)
    low, high = (jnp.asarray(end, moves.dtype) for end in space.limits)
    return jnp.clip(xi + (high - low) / 2 * moves, low, high)
