"""ScoreBED in one file: the paper's Algorithm 1 on source location finding, for reading.

    python examples/scorebed_in_one_file.py --help

Two sources are hidden in the plane, and a sensor is placed thirty times. The policy that places it,
given the outcomes so far, is trained beforehand to maximise the expected information gain (EIG).

    Stage 1   learns s(y, ξ) ≈ ∇_{y,ξ} log p(y_{1:T} | ξ_{1:T}) by marginal score matching.
    Stage 2   follows the EIG gradient of Theorem 1, with s in place of the intractable terms.
    Bounds    sPCE ≤ EIG ≤ sNMC are printed for the trained policy and for random designs.

Functions are for one experiment, theta (K, D), ys (T,), xis (T, D), and batched by `vmap`. With
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 in the environment
Linux keeps large arrays in the heap, which makes training about twice as fast."""

import argparse
import itertools
import math
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

K, D, T = 2, 2, 30  # sources, dimensions, experiment steps
BACKGROUND, FLOOR, SIGMA = 0.1, 1e-4, 0.5

# ---- The model: θ_k ~ N(0, I),  y_t ~ N(log μ(θ, ξ_t), σ²),  μ(θ, ξ) = b + Σ_k 1/(m + ‖θ_k − ξ‖²)


def log_intensity(theta, xi):
    """log μ(θ, ξ_t), or M of them if θ is (K, D, M). Scalar sums vectorise over the axis M."""
    mu = BACKGROUND
    for k in range(K):
        mu = mu + 1 / (FLOOR + sum((theta[k, i] - xi[i]) ** 2 for i in range(D)))
    return jnp.log(mu)


def step_log_prob(y, xi, theta):
    """log p(y_t | ξ_t, θ): one likelihood evaluation for each θ in `theta`."""
    residual = (y - log_intensity(theta, xi)) / SIGMA
    return -0.5 * residual**2 - math.log(SIGMA * math.sqrt(2 * math.pi))


def log_likelihood(ys, xis, theta):
    """log p(y_{1:T} | ξ_{1:T}, θ)."""
    return jax.vmap(step_log_prob, in_axes=(0, 0, None))(ys, xis, theta).sum(0)


def conditional_score(ys, xis, theta):
    """∇_{y,ξ} log p(y | ξ, θ)."""
    return jax.grad(log_likelihood, argnums=(0, 1))(ys, xis, theta)


def sample_designs(*, key):
    """AR(1): N(0, s² K_ρ) per coordinate, [K_ρ]_{tu} = ρ^|t−u|, s ~ U(0.2, 5), ρ ~ U(0.7, 1)."""
    key_hyper, key_normal = jr.split(key)
    # 1 − ρ is drawn, not ρ, since 1 − ρ² would lose its digits as ρ → 1.
    low, high = jnp.array([[0.2, 0.0], [5.0, 0.3]])
    scale, gap = jr.uniform(key_hyper, (2,), minval=low, maxval=high)
    noise = jr.normal(key_normal, (T, D))

    def step(x, innovation):
        x = (1 - gap) * x + jnp.sqrt(gap * (2 - gap)) * innovation
        return x, x

    return scale * jnp.concatenate([noise[:1], jax.lax.scan(step, noise[0], noise[1:])[1]])


def random_experiment(*, key):
    """(θ, y, ξ) with designs that ignore the data: the training set of stage 1."""
    key_theta, key_designs, key_noise = jr.split(key, 3)
    theta, xis = jr.normal(key_theta, (K, D)), sample_designs(key=key_designs)
    mean = jax.vmap(log_intensity, in_axes=(None, 0))(theta, xis)
    return theta, mean + SIGMA * jr.normal(key_noise, (T,)), xis


# ---- Stage 1: the score ∇ log p(y|ξ) = ∫ ∇ log p(y|ξ,θ) p(θ|y,ξ) dθ. The network has this form,
# with particles for the integral. Any other, such as the paper's transformer, could take its place.

PARTICLES, COLD = 8, 4.0  # β starts at sigmoid(−COLD), so that no point takes all the weight
HADAMARD = np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]])
CLOUD = np.concatenate([HADAMARD, -HADAMARD]).astype(np.float32)  # points around a particle
MEAN_Y, SCALE_Y, SCALE_XI = -0.7, 1.3, 3.0  # of `random_experiment`, to standardise inputs
TYPICAL_Y, TYPICAL_XI = 1.8, 0.1  # median squared conditional scores, to balance the loss


class ParticleScore(eqx.Module):
    """s(y, ξ) = Σ_i w_i ∇ log p(y | ξ, θ_i),  w_i ∝ v_i p(y | ξ, θ_i)^β.

    θ_i, v_i and β come from an encoder of single steps (ξ_t, y_t), pooled, and a head. A particle
    is a cloud of points, centre ± width; the power β removes points that contradict the data."""

    frequencies: jax.Array
    encoder: eqx.nn.MLP
    head: eqx.nn.MLP

    def __init__(self, *, width=128, features=64, key):
        key_frequencies, key_encoder, key_head = jr.split(key, 3)
        inputs, outputs = D + 1, PARTICLES * (2 * K * D + 1) + 1
        self.frequencies = 0.3 * jr.normal(key_frequencies, (inputs, features // 2))
        mlp = partial(eqx.nn.MLP, depth=1, activation=jax.nn.silu)
        self.encoder = mlp(features + inputs, width, width, key=key_encoder)
        self.head = mlp(2 * width, outputs, 2 * width, key=key_head)

    def particles(self, ys, xis):
        """Points θ_i as (K, D, points), log v_i and β, by Fourier features of fixed frequency."""
        x = jnp.concatenate([xis / SCALE_XI, (ys[:, None] - MEAN_Y) / SCALE_Y], axis=1)
        angles = 2 * math.pi * (x @ jax.lax.stop_gradient(self.frequencies))
        h = jax.vmap(self.encoder)(jnp.concatenate([jnp.cos(angles), jnp.sin(angles), x], axis=1))
        out = self.head(jnp.concatenate([h.mean(0), jax.nn.logsumexp(h, axis=0)]))
        size = 2 * PARTICLES * K * D
        centre, width = out[:size].reshape(2, PARTICLES, 1, K * D)
        points = (centre + jax.nn.softplus(width - 1) * CLOUD).reshape(-1, K * D)
        log_v = jnp.repeat(jax.nn.log_softmax(out[size:-1]), len(CLOUD))
        return points.T.reshape(K, D, -1), log_v, jax.nn.sigmoid(out[-1] - COLD)

    def __call__(self, ys, xis):
        """(s_y, s_ξ). The points are held fixed while log p is differentiated."""
        theta, log_v, beta = self.particles(ys, xis)
        log_p, pull_back = jax.vjp(lambda ys, xis: log_likelihood(ys, xis, theta), ys, xis)
        return pull_back(jax.nn.softmax(log_v + beta * log_p))


def marginal_score_matching(score, ys, xis, theta):
    """‖s(y, ξ) − ∇_{y,ξ} log p(y | ξ, θ)‖² of one experiment, weighted.

    A weight that depends on (y, ξ) alone does not move the minimiser. Dividing by one plus the
    squared score at a step keeps the few steps close to a source from dominating the others."""

    def part(s, target, typical):
        s, target = s.reshape(T, -1), target.reshape(T, -1)
        size = jax.lax.stop_gradient((s**2 / typical).mean(1, keepdims=True))
        return ((s - target) ** 2 / typical / (1 + size)).mean()

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
    """A scalar whose gradient in φ is the integrand of Theorem 1; its value is not an EIG.

        ∇_φ I = E { d/dφ log p(y | ξ, θ) − s_y(y, ξ) ∂y/∂φ − s_ξ(y, ξ) ∂ξ/∂φ }

    Under additive noise, as here, the first term is zero for every sample."""
    ys, xis = rollout(policy, theta, noise)
    s_y, s_xi = score(*jax.lax.stop_gradient((ys, xis)))
    return log_likelihood(ys, xis, theta) - (s_y * ys).sum() - (s_xi * xis).sum()


def policy_loss(policy, score, batch, *, key):
    """Minus the surrogate: descending its gradient raises the EIG. Its value means nothing."""
    key_theta, key_noise = jr.split(key)
    theta, noise = jr.normal(key_theta, (batch, K, D)), jr.normal(key_noise, (batch, T))
    return -jax.vmap(lambda t, e: surrogate(policy, score, t, e))(theta, noise).mean()


def policy_experiment(policy, *, key):
    """(θ, y, ξ) with designs by the policy."""
    key_theta, key_noise = jr.split(key)
    theta = jr.normal(key_theta, (K, D))
    return theta, *rollout(policy, theta, jr.normal(key_noise, (T,)))


# ---- Bounds of the EIG, with M parameters θ_m from the prior besides the true θ_0
#     sPCE  E log p(y|θ_0,ξ) / [1/(M+1) Σ_{m=0..M} p(y|θ_m,ξ)]  ≤  EIG
#     sNMC  E log p(y|θ_0,ξ) / [1/M     Σ_{m=1..M} p(y|θ_m,ξ)]  ≥  EIG

CHUNK, GROUPS = 4096, 16


def contrastive_bounds(theta, ys, xis, inner, *, key):
    """Both bounds of a batch of experiments with common θ_m; M is `inner`, in whole chunks."""
    chunk, chunks = min(CHUNK, inner), -(-inner // CHUNK)
    M = chunk * chunks

    def log_likelihoods(ys, xis, thetas):
        # Steps are scanned and M stays innermost, so that the loop runs over one row of M numbers.
        add_step = lambda total, data: (total + step_log_prob(*data, thetas), None)  # noqa: E731
        return jax.lax.scan(add_step, jnp.zeros(chunk), (ys, xis))[0]

    def add(carry, key):
        """Σ_m p(y|θ_m,ξ) so far, as e^top · total."""
        top, total = carry
        thetas = jr.normal(key, (K, D, chunk))
        each = jax.vmap(log_likelihoods, in_axes=(0, 0, None))(ys, xis, thetas)
        new_top = jnp.maximum(top, each.max(1))
        part = jnp.exp(jnp.maximum(each - new_top[:, None], -80.0)).sum(1)  # no slow denormals
        return (new_top, total * jnp.exp(top - new_top) + part), None

    start = jnp.full(len(ys), -jnp.inf), jnp.zeros(len(ys))
    (top, total), _ = jax.lax.scan(add, start, jr.split(key, chunks))
    log_sum, first = top + jnp.log(total), jax.vmap(log_likelihood)(ys, xis, theta)
    return first - jnp.logaddexp(log_sum, first) + math.log(M + 1), first - log_sum + math.log(M)


def eig_bounds(experiment, outer, inner, *, key):
    """Means of both bounds, and their standard errors over groups with independent draws."""

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
        of_params = lambda p: loss(eqx.combine(p, static), key=jr.fold_in(key, n))  # noqa: E731
        value, grad = jax.value_and_grad(of_params)(params)
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
    option = partial(parser.add_argument, type=int)
    option("--score-steps", default=1500, help="steps of stage 1")
    option("--policy-steps", default=600, help="steps of stage 2")
    option("--batch", default=256, help="experiments per step, in both stages")
    option("--inner", default=200_000, help="M: parameters in a bound besides the true one")
    option("--outer", default=512, help="N: experiments in a bound")
    option("--seed", default=0)
    args = parser.parse_args(argv)
    key_score, key_policy, key_stage1, key_stage2, key_bounds = jr.split(jr.key(args.seed), 5)

    score, loss = ParticleScore(key=key_score), partial(score_loss, batch=args.batch)
    adam = {"rate": 1e-3, "clip": 10.0, "betas": (0.9, 0.999)}
    score = fit("score: loss       ", score, loss, args.score_steps, **adam, key=key_stage1)

    policy, loss = DAD(key=key_policy), partial(policy_loss, score=score, batch=args.batch)
    adam = {"rate": 3e-4, "clip": 1.0, "betas": (0.8, 0.998)}
    policy = fit("policy: −surrogate", policy, loss, args.policy_steps, **adam, key=key_stage2)

    trained = partial(policy_experiment, policy)
    for name, experiment in (("trained policy", trained), ("random designs", random_experiment)):
        means, errors = eig_bounds(experiment, args.outer, args.inner, key=key_bounds)
        lower, upper = (f"{m:.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True))
        print(f"{name}:  {lower} ≤ EIG ≤ {upper} nats")


if __name__ == "__main__":
    main()
