"""Networks that imitate a policy: a student of the teacher's own kind finds its numbers, and the
teacher is asked about the student's experiments.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from oracles import Affine
from scorebed.errors import InvalidValueError
from scorebed.policies import make_policy
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.training.distillation import distil, lessons

TASK = LinearMarkov(horizon=3)


def affine(phi, kappa):
    return Affine(jnp.asarray(phi)[:, None], jnp.asarray(kappa))


TEACHER = affine([0.2, -0.1, 0.15], 0.1)


def test_a_student_of_the_same_kind_becomes_the_teacher(monkeypatch):
    monkeypatch.setattr("scorebed.training.distillation.RATE", 0.02)
    student = affine([0.0, 0.0, 0.0], 0.0)
    found = distil(TASK, TEACHER, student, experiments=32, steps=600, key=jr.key(0))
    np.testing.assert_allclose(found.phi, TEACHER.phi, atol=2e-3)
    np.testing.assert_allclose(found.kappa, TEACHER.kappa, atol=2e-3)


def test_the_teacher_is_asked_about_what_the_student_has_measured():
    student = affine([1.0, -1.0, 0.5], -0.3)
    lesson = lessons(TASK, student, TEACHER, jr.split(jr.key(1), 4))
    before = jnp.concatenate([jnp.zeros((4, 1, 1)), lesson.ys[:, :-1]], axis=1)
    np.testing.assert_allclose(lesson.xis, student.phi + student.kappa * before, rtol=1e-5)
    np.testing.assert_allclose(lesson.wanted, TEACHER.phi + TEACHER.kappa * before, rtol=1e-5)


def test_the_teachers_own_designs_are_those_wanted():
    lesson = lessons(TASK, TEACHER, TEACHER, jr.split(jr.key(1), 4))
    np.testing.assert_array_equal(lesson.xis, lesson.wanted)


def test_a_student_that_has_nothing_to_learn_is_refused():
    random = make_policy("random", TASK, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="the network that imitates a policy"):
        distil(TASK, TEACHER, random, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="two steps"):
        distil(TASK, TEACHER, TEACHER, steps=1, key=jr.key(0))
