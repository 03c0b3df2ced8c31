"""The memory of a program by liveness: exact where it can be counted by hand, and within a factor
of 1.5 of what the compiler reports for real steps of training.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from scorebed.methods.programs import training_programs
from scorebed.presets.reader import preset_values
from scorebed.runs.config import make_config, overrides_for
from scorebed.runs.execution import job_for
from scorebed.tasks import make_task
from scorebed.training.liveness import of_jaxpr
from scorebed.training.programs import TrainingProgram, footprint, is_shape

FACTOR = 1.5
N = 64
WORD = 4  # bytes
VECTOR = jax.ShapeDtypeStruct((N,), jnp.float32)
MATRIX = jax.ShapeDtypeStruct((N, N), jnp.float32)
SMALL = (
    "policy_training.batch=64",
    "score.batch=64",
    "score.width=16",
    "score.heads=2",
    "score.blocks=1",
    "varpost.batch=64",
    "varpost.width=16",
    "varpost.heads=2",
    "varpost.blocks=1",
    "jointvarpost.width=16",
    "jointvarpost.heads=2",
    "jointvarpost.blocks=1",
    "varmarg.batch=64",
    "varmarg.width=16",
    "varmarg.layers=1",
    "iosmc.trajectories=64",
    "iosmc.particles=32",
    "mlmc.levels=3",
)


def temporary(function, *shapes):
    return of_jaxpr(jax.make_jaxpr(function)(*shapes)).temporary


def small_programs(method, task_name):
    """The programs of a method with the paper's settings and small sizes."""
    task = make_task(task_name)
    values = preset_values("paper", task_name, task, method=method)
    config = make_config(values, overrides_for(method, SMALL))
    return list(training_programs(config.trained_by, job_for(config, task), together=False))


def reported(program: TrainingProgram) -> int:
    """Bytes, by the compiler of the CPU."""
    given, fixed = eqx.partition(program.shapes, is_shape)
    compiled = (
        jax.jit(
            lambda given: eqx.filter(program.function(*eqx.combine(given, fixed)), eqx.is_array),
            keep_unused=True,
        )
        .lower(given)
        .compile(compiler_options={"xla_backend_optimization_level": 0})  # of code, not of memory
    )
    found = compiled.memory_analysis()
    total = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return total - found.alias_size_in_bytes


def test_arguments_and_results_are_held():
    found = of_jaxpr(jax.make_jaxpr(lambda x: (x + 1, x.sum()))(VECTOR))
    assert (found.arguments, found.results, found.temporary) == (N * WORD, (N + 1) * WORD, 0)
    assert found.total == (2 * N + 1) * WORD


def test_a_chain_of_elementwise_operations_is_one_loop():
    assert temporary(lambda x: jnp.sum(jnp.exp(jnp.sin(x) * 2)), VECTOR) == 0


def test_a_costly_value_that_is_used_twice_is_held_once():
    def twice(x):
        y = jnp.exp(x)
        return (y * 2).sum(), jnp.cumsum(y)[-1:]

    assert temporary(twice, VECTOR) >= N * WORD


def test_products_hold_their_operand_and_their_result():
    # x → x w → (x w) w: at the second product the first result is held, the second is the output.
    assert temporary(lambda w: (w @ w) @ w, MATRIX) == N * N * WORD
    # Of a longer chain no more than two are alive at once, of which the last is the output.
    assert temporary(lambda w: (((w @ w) @ w) @ w) @ w, MATRIX) == N * N * WORD


def test_what_comes_to_nothing_is_free():
    def idle(w):
        w @ w @ w
        return w[0]

    assert temporary(idle, MATRIX) == 0


def test_a_scan_holds_what_it_stacks():
    def stacked(w):
        def step(x, _):
            return w @ x, jnp.tanh(x)

        return jax.lax.scan(step, jnp.ones(N), length=100)[1].sum()

    found = temporary(stacked, MATRIX)
    assert 100 * N * WORD <= found <= 106 * N * WORD


def test_the_gradient_of_a_scan_holds_its_residuals():
    def loss(w):
        return jax.lax.scan(lambda x, _: (jnp.tanh(w @ x), None), jnp.ones(N), length=100)[0].sum()

    assert temporary(jax.grad(loss), MATRIX) >= 100 * N * WORD


def test_of_two_branches_the_larger_counts():
    def chosen(first, w):
        return jax.lax.cond(first, lambda w: w @ w @ w, lambda w: w, w)

    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    assert temporary(chosen, flag, MATRIX) >= N * N * WORD


@pytest.mark.parametrize(
    ("method", "place"), [("pce", 0), ("score", 0), ("varmarg", 0)], ids=lambda each: str(each)
)
def test_it_agrees_with_the_compiler(method, place):
    program = small_programs(method, "linear-gaussian")[place]
    ratio = footprint(program).total / reported(program)
    assert 1 / FACTOR <= ratio <= FACTOR


@pytest.mark.slow
@pytest.mark.parametrize("task", ["location-finding", "pendulum"])
@pytest.mark.parametrize("method", ["score", "pce", "varmarg", "varpost", "jointvarpost", "iosmc"])
def test_it_agrees_with_the_compiler_on_the_papers_tasks(method, task):
    if method == "iosmc" and task != "pendulum":
        pytest.skip("its policies have a density on dynamical tasks alone")
    for program in small_programs(method, task):
        ratio = footprint(program).total / reported(program)
        assert 1 / FACTOR <= ratio <= FACTOR, program.name
