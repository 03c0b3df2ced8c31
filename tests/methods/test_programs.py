"""Every training step of the paper's preset can be lowered for accelerators, here and now, and its
memory is known, without an array of the paper's sizes.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from jax import export

from scorebed.methods.programs import training_programs
from scorebed.presets.reader import preset_values
from scorebed.runs.config import make_config, overrides_for
from scorebed.runs.execution import job_for
from scorebed.tasks import make_task
from scorebed.training.fit import member_keys, start_batch
from scorebed.training.programs import footprint, is_shape

PLATFORMS = ("cuda", "tpu")
EVERYWHERE = ("score", "varmarg", "varpost", "jointvarpost", "pce")
IID = ("location-finding", "location-finding-3d", "gravimetry")
DYNAMICAL = ("pendulum", "cart-pole", "double-link")
PAPER = (
    *((task, method, count) for task in IID for method in EVERYWHERE for count in (1, 5)),
    *((task, method, count) for task in DYNAMICAL for method in EVERYWHERE for count in (1, 50)),
    *((task, "score", 3) for task in DYNAMICAL),
    *((task, "iosmc", 1) for task in DYNAMICAL),
    ("location-finding", "mlmc", 1),
)
# One of each kind of program: the others differ from these in their sizes.
QUICK = (("gravimetry", "pce", 5), ("pendulum", "iosmc", 1), ("location-finding", "varpost", 1))
# No step of the paper, one policy at a time, takes more: an accelerator of 2020 has 40 GiB.
LARGEST = 40 * 2**30


def configured(task_name, method, count, overrides=()):
    task = make_task(task_name)
    values = preset_values("paper", task_name, task, method=method, policies=count)
    config = make_config(values, overrides_for(method, overrides))
    return config.trained_by, job_for(config, task)


def check_lowered(task_name, method, count):
    programs = list(training_programs(*configured(task_name, method, count), together=False))
    assert programs
    for program in programs:
        given, fixed = eqx.partition(program.shapes, is_shape)

        def function(given, program=program, fixed=fixed):
            return eqx.filter(program.function(*eqx.combine(given, fixed)), is_shape)

        made = export.export(jax.jit(function), platforms=PLATFORMS)(given)
        assert tuple(made.platforms) == PLATFORMS
        assert 0 < footprint(program).total < LARGEST


@pytest.mark.parametrize(("task", "method", "count"), QUICK)
def test_a_step_of_each_kind_is_lowered_for_accelerators(task, method, count):
    check_lowered(task, method, count)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "method", "count"), PAPER)
def test_every_step_of_the_paper_is_lowered_for_accelerators(task, method, count):
    check_lowered(task, method, count)


def test_a_program_is_what_training_runs():
    """The block that is lowered and the block that `fit` runs give the same parameters."""
    tiny = ("policy_training.batch=4", "pce.inner=3", "policy_training.steps=2")
    method, job = configured("linear-gaussian", "pce", 2, tiny)
    (program,) = training_programs(method, job, together=True)
    stage = method.train(job, None, "policy-0-0", 2)
    ran = stage.go_on(stage.start()).state
    state = start_batch(eqx.filter(stage.fresh, eqx.is_inexact_array), stage.optimiser)
    seeds = jr.key_data(member_keys(2, key=stage.key))
    given, arrays, *_ = program.shapes
    arrays = eqx.filter(stage.fresh, eqx.is_array)
    steps = (jnp.asarray(0), jnp.asarray(2))
    block = jax.jit(lambda *each: program.function(*each)[0])(given, arrays, state, seeds, *steps)
    for ours, theirs in zip(
        jax.tree.leaves(block.params), jax.tree.leaves(ran.params), strict=True
    ):
        assert jnp.allclose(ours, theirs, atol=1e-6)


def test_policies_at_once_take_as_much_more():
    tiny = ("policy_training.batch=64", "pce.inner=31")
    method, job = configured("linear-gaussian", "pce", 5, tiny)
    ((one,), (all_of_them,)) = (
        [footprint(each).temporary for each in training_programs(method, job, together=how)]
        for how in (False, True)
    )
    assert 4 * one <= all_of_them <= 5.5 * one
