"""Parts of a user's own, each in a file of its own."""

from pathlib import Path

METHOD = '''
import scorebed as sb
from scorebed.estimators.pce import pce
from scorebed.methods.fields import Count
from scorebed.methods.sections import PolicyTraining


class Contrast(sb.EstimatorMethod):
    """PCE with a handful of contrastive parameters."""

    policy_training: PolicyTraining
    contrasts: Count = 7
    """Contrastive parameters of every trajectory."""

    def estimate(self, task, policy, theta, noise, *, key):
        return pce(task, policy, theta, noise, inner=self.contrasts, key=key)

    def trajectory_nle(self, task):
        return (self.contrasts + 1) * task.horizon


class PCE(Contrast):
    """The same under a name that is built in."""


class Base(sb.EstimatorMethod):
    """Not a whole method."""


class Helper:
    """No method."""
'''
TASK = '''
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian


class Line(LinearGaussian):
    """y = ξθ + ε."""
'''
POLICY = '''
import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from scorebed.policies.base import Policy


class Feedback(Policy):
    """ξ_{t+1} = constrain(A y_t + b)."""

    gain: jnp.ndarray
    offset: jnp.ndarray
    space: object = eqx.field(static=True)

    def __init__(self, task, *, key):
        self.gain = 0.05 * jr.normal(key, (task.designs.dim, task.outcome_dim))
        self.offset = jnp.zeros(task.designs.dim)
        self.space = task.designs

    def sample_noise(self, horizon, *, key):
        return jnp.zeros((horizon, 0))

    def init(self):
        return jnp.zeros(self.gain.shape[1])

    def design(self, memory, noise):
        return self.space.constrain(self.gain @ memory + self.offset)

    def update(self, memory, xi, y):
        return y
'''
SCORE_KIND = '''
import jax
import jax.numpy as jnp
import scorebed as sb


class PointScore(sb.Score):
    """s(y, ξ) = ∇ log p(y | ξ, θ) at one θ, which is learned."""

    task: sb.Task
    theta: jax.Array

    def __call__(self, ys, xis):
        task = jax.lax.stop_gradient(self.task)
        gradient = jax.grad(sb.log_likelihood, argnums=(2, 3))
        return sb.ScoreValue(*gradient(task, self.theta, ys, xis))

    @property
    def nle(self):
        return self.task.horizon


class Point(sb.ScoreKind):
    """The conditional score at one parameter."""

    spread: float = 1.0
    """Where that parameter starts."""

    def make(self, task, standardise, *, key):
        return PointScore(task, self.spread * jnp.ones(task.prior.dim))

    def nle(self, task):
        return task.horizon
'''
SAMPLER = '''
from scorebed.samplers.gaussian import IsotropicGaussian


def close(task):
    """Independent Gaussian designs, a fifth of a unit wide."""
    return IsotropicGaussian(task.horizon, task.designs, scale=0.2)
'''
BOUND = '''
from typing import ClassVar

import scorebed as sb


class FewDraws(sb.Bound):
    """sPCE and sNMC with so few draws that they take no time."""

    name: ClassVar[str] = "few-draws"

    def __call__(self, task, policy, *, outer=None, inner=None, on_group=lambda *_: None, key):
        sizes = {"outer": outer or 16, "inner": inner or 32}
        return sb.eig_bounds(task, policy, **sizes, on_group=on_group, key=key)

    def nle(self, task, outer, inner):
        return outer * (inner + 1) * task.horizon
'''
FILES = {
    "method": (METHOD, "Contrast"),
    "task": (TASK, "Line"),
    "policy": (POLICY, "Feedback"),
    "score-kind": (SCORE_KIND, "Point"),
    "sampler": (SAMPLER, "close"),
    "bound": (BOUND, "FewDraws"),
}


def write(folder: Path, kind: str, *, more: str = "") -> str:
    """FILE.py:NAME of a part of that kind, with more at its end."""
    text, name = FILES[kind]
    path = folder / f"my_{kind.replace('-', '_')}.py"
    path.write_text(text + more)
    return f"{path}:{name}"
