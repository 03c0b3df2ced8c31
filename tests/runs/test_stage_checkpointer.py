"""A stage on disk: an interrupt at any point of writing its metrics loses no line and no step."""

import os

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import scorebed.runs.stage as checkpointed
from scorebed.runs.folder import METRICS, RunFolder
from scorebed.runs.stage import Progress, StageCheckpointer
from scorebed.runs.stage_files import StageFiles
from scorebed.training.fit import start
from scorebed.training.stage import Stage
from scorebed.training.watched import Block, Watched, watch

STEPS = 8


def after(steps: int) -> Watched:
    """A state of so many steps of training one number."""
    parameter = jnp.zeros(())
    state = start(parameter, optax.identity())
    return watch(eqx.tree_at(lambda s: s.step, state, jnp.asarray(steps, state.step.dtype)))


class CountingStage(Stage):
    """Blocks of two steps, 10 NLE a step, and a loss that names its step."""

    name, steps = "policy-0-0", STEPS

    def start(self):
        return after(0)

    def go_on(self, watched, *, on_block=lambda _: None):
        for step in range(watched.done + 2, STEPS + 1, 2):
            watched = after(step)
            on_block(Block(step, {"loss": np.asarray([float(step)])}, [], watched))
        return watched

    def result(self, watched):
        return watched

    def nle_at_most(self):
        return 10 * STEPS

    def nle(self, watched):
        return 10 * watched.done

    def nle_of(self, steps):
        return 10 * sum(steps)


def interrupted(monkeypatch, at: int, *, torn: bool):
    """Ctrl-C inside of the write of line number `at`, when it is all written or torn."""
    fsync, lines = os.fsync, []

    def interrupt(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(METRICS):
            lines.append(descriptor)
            if len(lines) == at:
                if torn:
                    os.ftruncate(descriptor, os.fstat(descriptor).st_size - 5)
                raise KeyboardInterrupt
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupt)


@pytest.mark.parametrize("often", [0.0, 1e9], ids=["a checkpoint after every block", "none"])
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_an_interrupt_inside_of_a_line_of_metrics_loses_nothing(
    config, tmp_path, monkeypatch, at, torn, often
):
    monkeypatch.setattr(checkpointed, "CHECKPOINT_SECONDS", often)
    stage, path = CountingStage(), tmp_path / "run"
    with monkeypatch.context() as patched, RunFolder.create(path, config) as folder:
        interrupted(patched, at, torn=torn)
        with pytest.raises(KeyboardInterrupt):
            StageCheckpointer(folder, Progress(), stage).carry_out()
    with RunFolder.open(path).acquire() as folder:
        watched = StageCheckpointer(folder, Progress(), stage).carry_out()
        lines = [(line["step"], line["loss"]) for line in folder.read_metrics(stage.name)]
        assert lines == [(step, float(step)) for step in (2, 4, 6, 8)]
        files = StageFiles(folder)
        assert files.spent(stage, 1) == 80  # a run that wrote nothing of its stage
        files.write(stage, watched, (0,))
        assert (files.spent(stage, 1), files.steps(stage.name, 1)) == (80, [8])


def test_what_a_stage_spent_does_not_depend_on_its_metrics(config, tmp_path):
    stage = CountingStage()
    with RunFolder.create(tmp_path / "run", config) as folder:
        StageCheckpointer(folder, Progress(), stage).carry_out()
        folder.truncate_metrics(stage.name, 4)
        assert StageFiles(folder).spent(stage, 1) == 80
