"""ScoreBED in one file: the paper's Algorithm 1 on source location finding, for reading.

    python examples/scorebed_in_one_file.py --help

Two sources hide in the plane, and a sensor is placed thirty times. The policy that places it, from
the outcomes so far, is trained beforehand to maximise the expected information gain (EIG) about the
sources.

    Stage 1   learns s(y, ξ) ≈ ∇_{y,ξ} log p(y_{1:T} | ξ_{1:T}) by marginal score matching, without any policy.
    Stage 2   follows the EIG gradient of Theorem 1, in which s stands for the intractable terms.
    Bounds    sPCE ≤ EIG ≤ sNMC are printed for the trained policy and for random designs.

Functions are written for one experiment, theta (K, D), ys (T,), xis (T, D), and batched by `vmap`
where they are used. On Linux the environment variables MALLOC_MMAP_MAX_=0
MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 keep large arrays in the heap, and
training is about twice as fast."""

import argparse
import functools
import itertools
import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

K, D, T = 2, 2, 30  # sources, dimensions, experiment steps
BACKGROUND, FLOOR, SIGMA = 0.1, 1e-4, 0.5

# ---- The model: θ_k ~ N(0, I),  y_t | θ, ξ_t ~ N(log μ(θ, ξ_t), σ²),  μ(θ, ξ) = b + Σ_k 1 / (m + ‖θ_k − ξ‖²)


def log_intensity(theta, xi):
    """log μ(θ, ξ_t), or M of them if θ is (K, D, M). Sums are written out: fast vector code, with M
    the only axis.
    """
    mu = BACKGROUND
    for k in range(K):
        mu = mu + 1 / (FLOOR + sum((theta[k, i] - xi[i]) ** 2 for i in range(D)))
    return jnp.log(mu)


def step_log_prob(y, xi, theta):
    """log p(y_t | ξ_t, θ): one likelihood evaluation for every θ in `theta`."""
    return -0.5 * ((y - log_intensity(theta, xi)) / SIGMA) ** 2 - math.log(
        SIGMA * math.sqrt(2 * math.pi)
    )


def log_likelihood(ys, xis, theta):
    """log p(y_{1:T} | ξ_{1:T}, θ)."""
    return jax.vmap(step_log_prob, in_axes=(0, 0, None))(ys, xis, theta).sum(0)


def conditional_score(ys, xis, theta):
    """∇_{y,ξ} log p(y | ξ, θ)."""
    return jax.grad(log_likelihood, argnums=(0, 1))(ys, xis, theta)


def sample_designs(*, key):
    """ξ_{1:T} ~ q(ξ), AR(1) of random scale: N(0, s² K_ρ) per coordinate, [K_ρ]_{tu} = ρ^|t−u|, s ~
    U(0.2, 5), ρ ~ U(0.7, 1).
    """
    key_hyper, key_normal = jr.split(key)
    # 1 − ρ is drawn, not ρ, since 1 − ρ² would lose its digits as ρ → 1.
    scale, gap = jr.uniform(
        key_hyper, (2,), minval=jnp.array([0.2, 0.0]), maxval=jnp.array([5.0, 0.3])
    )
    noise = jr.normal(key_normal, (T, D))

    def step(x, innovation):
        x = (1 - gap) * x + jnp.sqrt(gap * (2 - gap)) * innovation
        return x, x

    return scale * jnp.concatenate([noise[:1], jax.lax.scan(step, noise[0], noise[1:])[1]])


def random_experiment(*, key):
    """(θ, y, ξ) with designs that look at nothing: the data of stage 1."""
    key_theta, key_designs, key_noise = jr.split(key, 3)
    theta, xis = jr.normal(key_theta, (K, D)), sample_designs(key=key_designs)
    mean = jax.vmap(log_intensity, in_axes=(None, 0))(theta, xis)
    return theta, mean + SIGMA * jr.normal(key_noise, (T,)), xis


# ---- Stage 1: the score. It is the posterior mean of the conditional one: ∇ log p(y|ξ) = ∫ ∇ log p(y|ξ,θ) p(θ|y,ξ) dθ.
# The network below has this form, with particles for the integral, and learns in minutes on a CPU.
# Any other (y, ξ) ↦ (s_y, s_ξ), such as the paper's transformer, could take its place; nothing else
# would change.

PARTICLES = 8
HADAMARD = np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]])
CLOUD = np.concatenate([HADAMARD, -HADAMARD]).astype(
    np.float32
)  # points around a particle, in K · D = 4 dimensions
MEAN_Y, SCALE_Y, SCALE_XI = (
    -0.7,
    1.3,
    3.0,
)  # of `random_experiment`: networks want inputs of order one
TYPICAL_Y, TYPICAL_XI = (
    1.8,
    0.1,
)  # median squared conditional scores: both parts of the loss count alike
# β starts at sigmoid(−4): near one, a single point would take all the weight before anything is
# learned
COLD = 4.0


class ParticleScore(eqx.Module):
    """s(y, ξ) = Σ_i w_i ∇ log p(y | ξ, θ_i),  w_i ∝ v_i p(y | ξ, θ_i)^β, where θ_i, v_i and β come
    from a network of (y, ξ).

    An encoder sees one step (ξ_t, y_t) at a time; its outputs are pooled, and a head turns them
    into particles. Each is a cloud of points, centre ± width: a point alone would be far too sharp.
    The power β drops points that the data forbid."""

    frequencies: jax.Array
    encoder: eqx.nn.MLP
    head: eqx.nn.MLP

    def __init__(self, *, width=128, features=64, key):
        key_frequencies, key_encoder, key_head = jr.split(key, 3)
        inputs, outputs = D + 1, PARTICLES * (2 * K * D + 1) + 1
        self.frequencies = 0.3 * jr.normal(key_frequencies, (inputs, features // 2))
        self.encoder = eqx.nn.MLP(
            features + inputs, width, width, depth=1, activation=jax.nn.silu, key=key_encoder
        )
        self.head = eqx.nn.MLP(
            2 * width, outputs, 2 * width, depth=1, activation=jax.nn.silu, key=key_head
        )

    def particles(self, ys, xis):
        """Points θ_i as (K, D, points), log v_i and β."""
        x = jnp.concatenate([xis / SCALE_XI, (ys[:, None] - MEAN_Y) / SCALE_Y], axis=1)
        angles = (
            2 * math.pi * (x @ jax.lax.stop_gradient(self.frequencies))
        )  # random Fourier features, never trained
        h = jax.vmap(self.encoder)(jnp.concatenate([jnp.cos(angles), jnp.sin(angles), x], axis=1))
        out = self.head(jnp.concatenate([h.mean(0), jax.nn.logsumexp(h, axis=0)]))
        size = PARTICLES * K * D
        centre, width = (
            out[:size].reshape(PARTICLES, 1, K * D),
            out[size : 2 * size].reshape(PARTICLES, 1, K * D),
        )
        points = (centre + jax.nn.softplus(width - 1) * CLOUD).reshape(-1, K * D)
        log_v = jnp.repeat(jax.nn.log_softmax(out[2 * size : -1]), len(CLOUD))
        return points.T.reshape(K, D, -1), log_v, jax.nn.sigmoid(out[-1] - COLD)

    def __call__(self, ys, xis):
        """(s_y, s_ξ), of the shapes of `ys` and `xis`. The points are held fixed while log p is
        differentiated.
        """
        theta, log_v, beta = self.particles(ys, xis)
        log_p, pull_back = jax.vjp(lambda ys, xis: log_likelihood(ys, xis, theta), ys, xis)
        return pull_back(jax.nn.softmax(log_v + beta * log_p))


def marginal_score_matching(score, ys, xis, theta):
    """‖s(y, ξ) − ∇_{y,ξ} log p(y | ξ, θ)‖² of one experiment, weighted.

    A weight that depends on (y, ξ) alone leaves the minimiser where it is. Dividing by one plus the
    score's own squared size at a step keeps the few steps close to a source from drowning all
    others."""

    def part(s, target, typical):
        s, target = s.reshape(T, -1), target.reshape(T, -1)
        own = jax.lax.stop_gradient((s**2 / typical).mean(1, keepdims=True))
        return ((s - target) ** 2 / typical / (1 + own)).mean()

    (s_y, s_xi), (target_y, target_xi) = score(ys, xis), conditional_score(ys, xis, theta)
    return part(s_y, target_y, TYPICAL_Y) + part(s_xi, target_xi, TYPICAL_XI)


def score_loss(score, batch, *, key):
    """J_MSM(ψ), estimated from fresh experiments."""
    theta, ys, xis = jax.vmap(lambda k: random_experiment(key=k))(jr.split(key, batch))
    return jax.vmap(lambda *run: marginal_score_matching(score, *run))(ys, xis, theta).mean()


# ---- Stage 2: the policy


class DAD(eqx.Module):
    """Deep adaptive design: ξ_t = W Σ_{s<t} encoder(y_s, ξ_s) + b."""

    encoder: eqx.nn.MLP
    emitter: eqx.nn.Linear

    def __init__(self, *, key):
        key_encoder, key_emitter = jr.split(key)
        self.encoder = eqx.nn.MLP(1 + D, 16, 256, depth=1, activation=jax.nn.relu, key=key_encoder)
        emitter = eqx.nn.Linear(16, D, key=key_emitter)
        # W from U(−0.05, 0.05): the first policies stay close to their first design.
        self.emitter = eqx.tree_at(lambda layer: layer.weight, emitter, 0.2 * emitter.weight)


def rollout(policy, theta, noise):
    """(y, ξ)_{1:T} = g(ε, θ, φ), differentiable in the policy's parameters φ."""

    def step(memory, eps):
        xi = policy.emitter(memory)
        y = log_intensity(theta, xi) + SIGMA * eps
        return memory + policy.encoder(jnp.concatenate([y[None], xi])), (y, xi)

    return jax.lax.scan(step, jnp.zeros(policy.emitter.in_features), noise)[1]


def surrogate(policy, score, theta, noise):
    """A scalar whose gradient in φ is the integrand of Theorem 1; its value is no EIG.

        ∇_φ I = E { d/dφ log p(y | ξ, θ) − s_y(y, ξ) ∂y/∂φ − s_ξ(y, ξ) ∂ξ/∂φ }

    The first term is zero for every sample under additive noise, as here; other models need it.
    """
    ys, xis = rollout(policy, theta, noise)
    s_y, s_xi = score(*jax.lax.stop_gradient((ys, xis)))
    return log_likelihood(ys, xis, theta) - (s_y * ys).sum() - (s_xi * xis).sum()


def policy_loss(policy, score, batch, *, key):
    """Minus the surrogate: down its gradient the EIG goes up. The value means nothing."""
    key_theta, key_noise = jr.split(key)
    theta, noise = jr.normal(key_theta, (batch, K, D)), jr.normal(key_noise, (batch, T))
    return -jax.vmap(lambda t, e: surrogate(policy, score, t, e))(theta, noise).mean()


def policy_experiment(policy, *, key):
    """(θ, y, ξ) with designs by the policy."""
    key_theta, key_noise = jr.split(key)
    theta = jr.normal(key_theta, (K, D))
    return theta, *rollout(policy, theta, jr.normal(key_noise, (T,)))


# ---- Bounds of the EIG, with M parameters θ_m from the prior besides the true θ_0
#     sPCE  E log p(y|θ_0,ξ) / [1/(M+1) Σ_{m=0..M} p(y|θ_m,ξ)]  ≤  EIG  ≤  E log p(y|θ_0,ξ) / [1/M
#     Σ_{m=1..M} p(y|θ_m,ξ)]  sNMC

CHUNK, GROUPS = 4096, 16


def contrastive_bounds(theta, ys, xis, inner, *, key):
    """Both bounds of every one of a batch of experiments, which share their θ_m; M is `inner`
    rounded up to whole chunks.
    """
    chunk, chunks = min(CHUNK, inner), -(-inner // CHUNK)
    M = chunk * chunks

    def log_likelihoods(ys, xis, thetas):
        # Steps are scanned and M stays innermost: one row of M numbers at a time is all that the
        # loop touches.
        add_step = lambda total, data: (total + step_log_prob(*data, thetas), None)  # noqa: E731
        return jax.lax.scan(add_step, jnp.zeros(chunk), (ys, xis))[0]

    def add(carry, key):
        """Σ_m p(y|θ_m,ξ) so far, as e^top · total."""
        top, total = carry
        each = jax.vmap(log_likelihoods, in_axes=(0, 0, None))(
            ys, xis, jr.normal(key, (K, D, chunk))
        )
        new_top = jnp.maximum(top, each.max(1))
        part = jnp.exp(jnp.maximum(each - new_top[:, None], -80.0)).sum(
            1
        )  # smaller ones are slow denormals
        return (new_top, total * jnp.exp(top - new_top) + part), None

    (top, total), _ = jax.lax.scan(
        add, (jnp.full(len(ys), -jnp.inf), jnp.zeros(len(ys))), jr.split(key, chunks)
    )
    log_sum, own = top + jnp.log(total), jax.vmap(log_likelihood)(ys, xis, theta)
    return own - jnp.logaddexp(log_sum, own) + math.log(M + 1), own - log_sum + math.log(M)


def eig_bounds(experiment, outer, inner, *, key):
    """Means of lower and upper bound, and their standard errors, over groups that share no
    draws.
    """

    @jax.jit
    def group(key):
        key_runs, key_inner = jr.split(key)
        runs = jax.vmap(lambda k: experiment(key=k))(jr.split(key_runs, -(-outer // GROUPS)))
        return jnp.stack(contrastive_bounds(*runs, inner, key=key_inner)).mean(1)

    means = np.stack([np.asarray(group(k), np.float64) for k in jr.split(key, GROUPS)])
    return means.mean(0), means.std(0, ddof=1) / math.sqrt(GROUPS)


def fit(name, model, loss, steps, *, rate, clip, betas, key):
    """Minimise loss(model, key=…) by Adam with a cosine decay, many steps in one compiled call."""
    schedule = optax.cosine_decay_schedule(rate, max(steps, 1), alpha=0.02)
    optimiser = optax.chain(optax.clip_by_global_norm(clip), optax.adam(schedule, *betas))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def step(n, carry):
        params, state, total = carry
        value, grad = jax.value_and_grad(
            lambda p: loss(eqx.combine(p, static), key=jr.fold_in(key, n))
        )(params)
        update, state = optimiser.update(grad, state)
        return optax.apply_updates(params, update), state, total + value

    run = jax.jit(lambda first, last, carry: jax.lax.fori_loop(first, last, step, carry))
    state, start = optimiser.init(params), time.perf_counter()
    stops = np.unique(np.linspace(0, steps, 11).astype(int)).tolist()
    for first, last in itertools.pairwise(stops):
        params, state, total = run(first, last, (params, state, jnp.zeros(())))
        mean, seconds = total / (last - first), time.perf_counter() - start
        print(f"{name} {mean:9.3f}   step {last}/{steps}   {seconds:.0f} s", flush=True)
    return eqx.combine(params, static)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--score-steps", type=int, default=1500, help="steps of stage 1")
    parser.add_argument("--policy-steps", type=int, default=600, help="steps of stage 2")
    parser.add_argument(
        "--batch", type=int, default=256, help="experiments per step, in both stages"
    )
    parser.add_argument(
        "--inner", type=int, default=200_000, help="M: parameters in a bound besides the true one"
    )
    parser.add_argument("--outer", type=int, default=512, help="N: experiments in a bound")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    key_score, key_policy, key_stage1, key_stage2, key_bounds = jr.split(jr.key(args.seed), 5)

    score, loss = ParticleScore(key=key_score), functools.partial(score_loss, batch=args.batch)
    adam = {"rate": 1e-3, "clip": 10.0, "betas": (0.9, 0.999)}
    score = fit("score: loss       ", score, loss, args.score_steps, **adam, key=key_stage1)

    policy, loss = (
        DAD(key=key_policy),
        functools.partial(policy_loss, score=score, batch=args.batch),
    )
    adam = {"rate": 3e-4, "clip": 1.0, "betas": (0.8, 0.998)}
    policy = fit("policy: −surrogate", policy, loss, args.policy_steps, **adam, key=key_stage2)

    trained = functools.partial(policy_experiment, policy)
    for name, experiment in (("trained policy", trained), ("random designs", random_experiment)):
        (lower, upper), (lower_se, upper_se) = eig_bounds(
            experiment, args.outer, args.inner, key=key_bounds
        )
        print(f"{name}:  {lower:.3f} ± {lower_se:.3f} ≤ EIG ≤ {upper:.3f} ± {upper_se:.3f} nats")


if __name__ == "__main__":
    main()
