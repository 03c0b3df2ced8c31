"""Programs that are compiled to run once."""

import jax
import jax.numpy as jnp

from scorebed._jit import jit_once


def test_what_is_traced_outside_is_not_compiled_inside():
    """A key of a traced program enters a pilot that is computed before the program: options of
    compilation are for programs of their own.
    """

    def program(x):
        with jax.ensure_compile_time_eval():
            return jit_once(jnp.sin)(x) + jit_once(jnp.cos)(jnp.zeros(()))

    assert jax.make_jaxpr(program)(1.0).out_avals[0].shape == ()
    assert jax.jit(program)(0.0) == 1.0
