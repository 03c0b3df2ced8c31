"""The method for finitely many outcomes keeps the protocol: costs are the sum of its stages, sizes
fit into a budget, and a run goes from file to report, is resumed, taken over and used at the bench.
"""

import jax.random as jr
import pytest
from method_tasks import Threshold

from scorebed.errors import InvalidValueError
from scorebed.methods.base import Job
from scorebed.methods.reading import method_values, read_method
from scorebed.policies import make_policy
from scorebed.presets.reader import preset_values
from scorebed.samplers import make_sampler

TASK = Threshold()


def job(**more):
    return Job(
        task=TASK,
        sampler=make_sampler("paper", TASK),
        make_policy=lambda task, *, key: make_policy("belief", task, key=key),
        policies=2,
        key=jr.key(0),
        **more,
    )


def method_of(**settings):
    values = preset_values("quick", "threshold", TASK, method="predictive")
    values["predictive"] |= settings
    return read_method("predictive", values)


@pytest.mark.parametrize("follow", [True, False])
def test_costs_are_the_sum_of_the_stages_and_fit_into_a_budget(follow):
    method, work = method_of(follow=follow), job()
    method.supports(TASK)
    assert read_method("predictive", method_values("predictive", method)) == method
    upfront, stage = method.upfront(work, 0), method.train(work, None, "policy-0-0", 2)
    total = upfront.nle_at_most() + stage.nle_at_most()
    assert method.nle(work) == total
    # A step of the predictive: T·|Y| for its target, and what its particles take.
    each = 2 * 2 + 2 * (32 * 2 + 64)
    assert upfront.nle_at_most() == method.network.steps * method.network.batch * each
    budget = total - upfront.nle_at_most() // 2
    limited = job(budget=budget)
    assert 0 < method.within(budget, limited).nle(limited) <= budget
    with pytest.raises(InvalidValueError, match="at least"):
        method.within(1, limited)


def test_steps_can_be_set_and_timed():
    short = method_of().timed(9, 3)
    assert (short.policy_settings.steps, short.upfront(job(), 0).steps) == (9, 9)
    longer = method_of().with_steps(job(), 5, 7)
    assert (longer.policy_settings.steps, longer.upfront(job(), 0).steps) == (7, 5)
