"""The ONNX form of every policy, step by step beside the policy itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

pytest.importorskip("onnx", reason="these tests need onnx: pip install onnx")
pytest.importorskip("onnxruntime", reason="these tests need it: pip install onnxruntime")

import onnx
import onnxruntime

from scorebed._jit import jit_once
from scorebed.export.jaxpr_to_onnx import NoOnnxError, to_onnx
from scorebed.export.programs import DESIGN, INIT, NOISE, UPDATE, make_programs
from scorebed.policies import POLICIES, make_policy
from scorebed.policies.receding_horizon import RecedingHorizon
from scorebed.tasks import make_task

TASKS = {"gru": "pendulum", "plan": "cart-pole", "attention": "gravimetry"}
NO_ONNX = {
    "modes": "the operation 'scatter'",  # and factorisations after it
    "lookahead": "the operation 'bitcast_convert_type'",
    "receding-horizon": "the operation 'scatter'",
}
BUILT_IN = tuple(POLICIES)
STEPS = 4


def made(name):
    task = make_task(TASKS.get(name, "location-finding"))
    if name == "receding-horizon":  # whose search would take a minute
        policy = RecedingHorizon(task, plans=jnp.zeros((1, task.horizon, 2)), key=jr.key(0))
        return task, policy, make_programs(policy, task)
    policy = jit_once(lambda key: make_policy(name, task, key=key))(jr.key(0))
    return task, policy, make_programs(policy, task)


def onnx_program(programs, name):
    """A program as a function of arrays, by onnxruntime; the model has passed onnx's checker."""
    program = programs.each[name]
    if not program.outputs:
        return lambda *_: ()
    data = to_onnx(name, program, list(programs.weights.values()))
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    session = onnxruntime.InferenceSession(data)
    assert [output.name for output in session.get_outputs()] == list(program.outputs)
    return lambda *values: session.run(None, dict(zip(program.inputs, values, strict=True)))


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in NO_ONNX])
def test_designs_and_memory_agree_with_the_policy(name):
    task, policy, programs = made(name)
    init, design, update = (onnx_program(programs, each) for each in (INIT, DESIGN, UPDATE))
    ours_design, ours_update = eqx.filter_jit(policy.design), eqx.filter_jit(policy.update)
    noise = policy.sample_noise(task.horizon, key=jr.key(1))
    ys = np.random.default_rng(0).normal(size=(STEPS, task.outcome_dim)).astype(np.float32)
    memory, ours = init(), policy.init()
    for row, y in zip(np.asarray(noise), ys, strict=False):
        (xi,) = design(*memory, row)
        expected = ours_design(ours, jnp.asarray(row))
        np.testing.assert_allclose(xi, expected, rtol=1e-4, atol=1e-5)
        memory, ours = update(*memory, xi, y), ours_update(ours, expected, jnp.asarray(y))
        leaves = jax.tree_util.tree_leaves(ours)
        for found, leaf in zip(memory, leaves, strict=True):
            assert (found.shape, found.dtype) == (leaf.shape, leaf.dtype)
            np.testing.assert_allclose(found, leaf, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NO_ONNX)
def test_a_policy_that_factorises_matrices_is_refused_with_its_reason(name):
    _, _, programs = made(name)
    with pytest.raises(NoOnnxError, match=NO_ONNX[name]):
        to_onnx(UPDATE, programs.each[UPDATE], list(programs.weights.values()))


def test_the_program_of_the_noise_is_refused_because_onnx_has_no_such_generator():
    _, _, programs = made("gru")
    with pytest.raises(NoOnnxError, match=r"has no ONNX form|values of type"):
        to_onnx(NOISE, programs.each[NOISE], list(programs.weights.values()))
