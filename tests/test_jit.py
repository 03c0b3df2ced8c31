"""Programs that are compiled to run once."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from scorebed._jit import Constant, jit_once
from scorebed.tasks import make_task


def test_what_is_traced_outside_is_not_compiled_inside():
    """A key of a traced program enters a pilot that is computed before the program: options of
    compilation are for programs of their own.
    """

    def program(x):
        with jax.ensure_compile_time_eval():
            return jit_once(jnp.sin)(x) + jit_once(jnp.cos)(jnp.zeros(()))

    assert jax.make_jaxpr(program)(1.0).out_avals[0].shape == ()
    assert jax.jit(program)(0.0) == 1.0


def test_a_program_is_traced_once_for_equal_constants():
    traced = []

    @jit_once
    def double(constant, x):
        traced.append(constant)
        return jnp.asarray(constant.tree["by"]) * x

    for by in (jnp.asarray(2.0), jnp.asarray(2.0), jnp.asarray(3.0), np.float32(3.0), 3, 3.0):
        assert double(Constant({"by": by}), 1.0) == by
    assert len(traced) == 5
    assert Constant(make_task("pendulum")) == Constant(make_task("pendulum"))
    assert Constant(make_task("pendulum")) != Constant(make_task("pendulum", horizon=3))
    assert Constant(jr.key(0)) == Constant(jr.key(0))
    assert Constant(jr.key(0)) != Constant(jr.key(1))


def test_what_has_no_hash_is_a_constant_of_its_own():
    one = Constant((jnp.zeros(1), {"a"}))
    assert one == one
    assert one != Constant(one.tree)
    assert hash(one) == hash(one)
