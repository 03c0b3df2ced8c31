"""A network that imitates a policy, for computers that cannot run it: no model, no inference.

A teacher that plans or follows a posterior needs the model in every step. The student is a network
of the history, trained to give the teacher's designs:

    loss(φ) = E 1/T Σ_t |n(π_φ(h_{t−1})) − n(ξ*_t)|²,   n the designs in units of their space

first on the teacher's own experiments, then on those and the student's own, in which the teacher
says at every step what it would have measured (DAgger; Ross et al., 2011): the student's small
errors lead to histories that no experiment of the teacher has. Experiments are simulated once and
used in all steps. No likelihood is evaluated but by the teacher: `teacher.design_nle` an
experiment. When wrong: designs that hang on far more than the student can remember, such as being
within a hundredth of a source; how much is lost is a matter of bounds."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, require
from scorebed.keys import named
from scorebed.policies.base import Memory, Policy
from scorebed.rollout import draw_noise
from scorebed.tasks.base import State, Task
from scorebed.training.fit import StepInfo, Terms, fit_one

RATE, BATCH, DECAY = 1e-3, 64, 0.99
AT_ONCE = 16  # experiments


class Lesson(eqx.Module):
    """An experiment, and the designs of the teacher at every step of it."""

    ys: Float[Array, "*n T dy"]
    xis: Float[Array, "*n T dx"]
    wanted: Float[Array, "*n T dx"]


def distil(
    task: Task,
    teacher: Policy,
    student: Policy,
    *,
    experiments: int = 512,
    steps: int = 3000,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    key: PRNGKeyArray,
) -> Policy:
    """A network that imitates a policy.

    Arguments:
        task: the experiment.
        teacher: the policy to imitate.
        student: a network, as it was made.
        experiments: of the teacher's, and as many of the student's.
        steps: of training, half of them before the student's own experiments.
        on_step: called after every block of steps.
        key: the random key.

    Returns:
        The student after training.

    Raises:
        InvalidValueError: if the student has nothing to train or evaluates likelihoods itself, or a
            size is too small.

    Example:
        >>> teacher = sb.make_policy("dad", task, key=jr.key(0))
        >>> student = sb.make_policy("plan", task, key=jr.key(1))
        >>> small = sb.distil(task, teacher, student, experiments=2, steps=2, key=jr.key(2))
        >>> small.design_nle
        0
    """
    if not student.trainable or student.design_nle:
        raise InvalidValueError(
            "the network that imitates a policy",
            got=type(student).__name__,
            expected="one to train that evaluates no likelihoods",
            fix="use plan, gru, attention or dad.",
        )
    require(
        experiments >= 1 and steps >= 2,
        "the sizes of an imitation",
        got=f"{experiments=}, {steps=}",
        expected="at least one experiment and two steps",
        fix="leave them out for the usual ones.",
    )
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(RATE, steps // 2))
    )
    keys = jr.split(named(key, "experiments"), 2 * experiments).reshape(2, experiments)
    theirs = lessons(task, teacher, teacher, keys[0])
    for number, own in enumerate((False, True)):
        seen = theirs
        if own:
            ours = lessons(task, student, teacher, keys[1])
            seen = jax.tree.map(lambda *both: jnp.concatenate(both), theirs, ours)
        student = fit_one(
            lambda static, seen=seen: _loss(task, static, seen),
            student,
            steps=steps // 2,
            optimiser=optimiser,
            decay=DECAY,
            on_step=on_step,
            key=named(key, "steps", number),
        )
    return student


def lessons(task: Task, actor: Policy, teacher: Policy, keys: Key[Array, " n"]) -> Lesson:
    """Experiments that the actor carries out."""

    def one(key: PRNGKeyArray) -> Lesson:
        theta = task.prior.sample(key=named(key, "theta"))
        noise = draw_noise(task, actor, key=named(key, "noise"))
        teachers = draw_noise(task, teacher, key=named(key, "teacher"))

        def step(
            carry: tuple[State, Memory, Memory], eps: tuple[Array, Array, Array]
        ) -> tuple[tuple[State, Memory, Memory], tuple[Array, Array, Array]]:
            state, memory, taught = carry
            outcome, own, theirs = eps
            wanted = teacher.design(taught, theirs)
            xi = wanted if actor is teacher else actor.design(memory, own)
            y = task.outcome(theta, state, xi, outcome)
            taught = teacher.update(taught, xi, y)
            memory = None if actor is teacher else actor.update(memory, xi, y)
            return (task.advance(theta, state, xi, y), memory, taught), (y, xi, wanted)

        own = None if actor is teacher else actor.init()
        start = task.initial(theta), own, teacher.init()
        rows = noise.outcome, noise.policy, teachers.policy
        return Lesson(*jax.lax.scan(step, start, rows)[1])

    found: Lesson = eqx.filter_jit(lambda keys: jax.lax.map(one, keys, batch_size=AT_ONCE))(keys)
    return found


def imitation(task: Task, student: Policy, lesson: Lesson, noise: Float[Array, "T n"]) -> Scalar:
    """How far the student's designs are from those wanted, on the lesson's history."""

    def step(memory: Memory, row: tuple[Array, Array, Array]) -> tuple[Memory, Array]:
        xi, y, eps = row
        return student.update(memory, xi, y), student.design(memory, eps)

    found = jax.lax.scan(step, student.init(), (lesson.xis, lesson.ys, noise))[1]
    unit = task.designs.normalise
    return ((unit(found) - unit(lesson.wanted)) ** 2).sum(-1).mean()


def _loss(
    task: Task, static: Any, seen: Lesson
) -> Callable[[Any, PRNGKeyArray], dict[str, Scalar]]:
    count = len(seen.ys)

    def loss(params: Any, key: PRNGKeyArray) -> Terms:
        student = eqx.combine(params, static)
        key_some, key_noise = jr.split(key)
        some = jr.randint(key_some, (min(BATCH, count),), 0, count)
        batch = jax.tree.map(lambda rows: rows[some], seen)
        noise = student.sample_noise(task.horizon, key=key_noise)
        each = jax.vmap(lambda lesson: imitation(task, student, lesson, noise))(batch)
        return {"imitation": each.mean()}

    return loss
