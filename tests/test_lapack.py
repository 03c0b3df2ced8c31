"""Batches of matrices on a CPU: every LAPACK call is one that jaxlib computes in place, for those
that it shares out among its threads may wait for each other for ever.
"""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import scorebed.tasks.base  # noqa: F401, which has them computed in place
from scorebed import _lapack

pytestmark = pytest.mark.skipif(
    not _lapack.is_affected(), reason="this version of jaxlib computes all of them in place"
)

# Two solves that do not wait for each other, behind kernels of several threads, so that both
# threads of the pool of two cores take one. Without pieces half of such processes never end.
INDEPENDENT = """
import jax, jax.numpy as jnp
import scorebed.tasks.base
from jax.scipy.linalg import solve_triangular

@jax.jit
def both(factors, values):
    parts = [jnp.tanh((1 + 0.1 * i) * factors) + 2 * jnp.eye(8) for i in range(6)]
    return sum(solve_triangular(part, values, lower=True).sum() for part in parts)

factors, values = jnp.full((4000, 8, 8), 0.1), jnp.ones((4000, 8, 4))
for _ in range(50):
    both(factors, values).block_until_ready()
print("done")
"""


def test_independent_calls_do_not_wait_for_each_other():
    done = subprocess.run(
        [sys.executable, "-c", INDEPENDENT],
        env=os.environ | {"PJRT_NPROC": "2"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


def matrices(batch, n):
    root = jr.normal(jr.key(n), (*batch, n, n))
    return root @ root.mT + n * jnp.eye(n)


def calls(function, *arguments):
    """The LAPACK routines that a program calls, each with the batch of its first operand."""
    text = jax.jit(function).lower(*arguments).as_text()
    found = re.findall(r"@lapack_\w(\w+?)_ffi\(.*?: \((tensor<.*?>)", text)
    return [
        (name, int(np.prod([int(size) for size in re.findall(r"(\d+)x", shape)[:-2]])))
        for name, shape in found
    ]


def lower_solve(a, b):
    return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def right_solve(a, b):
    return jax.lax.linalg.triangular_solve(a, b.mT, lower=True, transpose_a=True)


def its_gradient(a):
    return jax.grad(lambda a: jnp.linalg.cholesky(a).sum())(a)


ONE = (jnp.linalg.cholesky, its_gradient, jax.lax.linalg.lu, jnp.linalg.eigh)
CASES = [
    *((function, False) for function in (*ONE, jnp.linalg.svd, jnp.linalg.qr)),
    *((function, True) for function in (lower_solve, right_solve, jnp.linalg.solve)),
]


@pytest.mark.parametrize(("function", "two"), CASES)
@pytest.mark.parametrize(("batch", "n"), [((3, 700), 6), ((3,), 60)])
def test_large_batches_are_cut_and_give_what_single_matrices_give(function, two, batch, n):
    a, b = matrices(batch, n), jr.normal(jr.key(0), (*batch, n, 3))
    arguments = (a, b) if two else (a,)
    found = calls(function, *arguments)
    assert found
    for name, size in found:
        operations = {"potrf": n**3, "trsm": n * n * 3}.get(name, _lapack.IN_PLACE)
        assert size == 1 or size * operations < _lapack.IN_PLACE, name
    many = jax.jit(function)(*arguments)
    last = (-1,) * len(batch)
    one = jax.jit(function)(*(each[last] for each in arguments))
    jax.tree.map(lambda x, all_: np.testing.assert_array_equal(x, all_[last]), one, many)


def test_a_batch_of_unknown_size_and_a_small_one_are_left_alone():
    a = matrices((3,), 4)
    assert calls(jnp.linalg.cholesky, a) == [("potrf", 3)]
    assert calls(jnp.linalg.cholesky, a[0]) == [("potrf", 1)]
    (size,) = jax.export.symbolic_shape("size")
    unknown = jax.ShapeDtypeStruct((size, 4, 4), jnp.float32)
    exported = jax.export.export(jax.jit(jnp.linalg.cholesky))(unknown)
    np.testing.assert_array_equal(exported.call(a), jnp.linalg.cholesky(a))


def test_the_largest_batch_is_in_place_and_one_always():
    assert _lapack.largest_batch("cholesky", [(9, 10, 10)]) == 199
    assert _lapack.largest_batch("triangular_solve", [(9, 10, 10), (9, 10, 4)]) == 499
    assert _lapack.largest_batch("cholesky", [(9, 200, 200)]) == 1
    assert _lapack.largest_batch("lu", [(9, 2, 2)]) == 1
