"""A run whose batches cannot fit is refused before anything is written, with batches that would."""

import pytest

from scorebed.errors import InvalidValueError
from scorebed.presets.reader import preset_values
from scorebed.runs import footprint
from scorebed.runs.config import make_config
from scorebed.runs.footprint import require_memory, step_memory
from scorebed.tasks import make_task

TASK = make_task("linear-gaussian")


def pce(*overrides):
    values = preset_values("paper", "linear-gaussian", TASK, method="pce")
    return make_config(values, overrides)


def test_memory_grows_with_the_batch():
    small, large = (
        step_memory(pce(f"policy_training.batch={n}"), TASK).total for n in (1024, 8192)
    )
    assert 6 * small < large < 8.5 * small


def test_a_batch_that_cannot_fit_is_refused_with_one_that_does():
    config = pce("policy_training.batch=1_000_000_000", "policy_training.steps=10")
    with pytest.raises(InvalidValueError) as refused:
        require_memory(config, TASK)
    message = str(refused.value)
    assert "policy_training.batch, got 1,000,000,000" in message
    suggested = int(message.split("set it to ")[1].split(", or take")[0].replace(",", ""))
    fitting = pce(f"policy_training.batch={suggested}", "policy_training.steps=10")
    assert step_memory(fitting, TASK).total <= footprint.memory_limit()


def test_what_fits_and_what_is_short_passes(monkeypatch):
    require_memory(pce(), TASK)
    monkeypatch.setattr(footprint, "memory_limit", lambda: 1)
    require_memory(pce("policy_training.steps=1", "policy_training.batch=64"), TASK)
    with pytest.raises(InvalidValueError):
        require_memory(pce("policy_training.steps=1_000_000"), TASK)
