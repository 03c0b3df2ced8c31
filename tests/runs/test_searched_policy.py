"""A policy that is found by a search and not trained: found once, charged, kept with its run, and
compared with the sequence of designs that it starts from.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from scorebed.methods.base import Job
from scorebed.policies.informative_plans import plans_nle
from scorebed.runs.artifacts import load_policy
from scorebed.runs.begin import Request, plan
from scorebed.runs.execution import Execution
from scorebed.runs.stage import Progress
from scorebed.tasks import make_task

TASK = make_task("linear-gaussian")


@pytest.fixture
def finds(monkeypatch):
    """Decides what the search finds."""

    def decide(value: float) -> None:
        monkeypatch.setattr(
            "scorebed.policies.receding_horizon.informative_plans",
            lambda task, count, **_: jnp.full((count, task.horizon, task.designs.dim), value),
        )

    return decide


def test_a_search_is_made_once_and_its_result_is_kept(tmp_path, finds):
    request = Request(
        task_name="linear-gaussian",
        task=TASK,
        preset="quick",
        method="pce",
        policy="receding-horizon",
    )
    new = plan(request)
    with new.create(tmp_path / "run") as folder:
        finds(0.3)
        execution = Execution(folder, new.config, TASK, progress=Progress())
        policy = execution.choose(0, [None])
        np.testing.assert_allclose(policy.plans, 0.3)
        assert execution.ledgers.training.totals == {"search-0": plans_nle(TASK, 32)}
        ((blind, _),) = execution.bounds.start(policy).values()
        first = [each.design(each.init(), jnp.zeros(0)) for each in (blind, policy)]
        np.testing.assert_allclose(*first, rtol=1e-5)
        assert not blind.adaptive
        finds(-0.7)
        job: Job = execution.job
        kept = load_policy(folder.path / "policy-0.safetensors", job.make_policy, TASK)
        np.testing.assert_allclose(kept.plans, 0.3)
        again = Execution(folder, new.config, TASK, progress=Progress())
        np.testing.assert_allclose(again.choose(0, [None]).plans, 0.3)
        assert again.ledgers.training.totals == execution.ledgers.training.totals
        assert "search-0" in folder.seconds_by_stage()
    assert new.config.trained_by.nle(job) == plans_nle(TASK, 32)
