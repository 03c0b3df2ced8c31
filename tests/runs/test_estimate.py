"""How long a bound takes: by arithmetic, or timed on a share of it."""

from typing import ClassVar

import equinox as eqx
import jax.random as jr
import pytest

from scorebed.bounds.base import Bound
from scorebed.errors import InvalidValueError
from scorebed.policies import make_policy
from scorebed.runs import estimate
from scorebed.runs.estimate import DAY, bound_seconds, fewest_seconds, in_words, require_day
from scorebed.tasks import make_task


class Counted(Bound):
    """A bound that notes what it is asked for."""

    name: ClassVar[str] = "counted"
    calls: list[tuple[int, int]] = eqx.field(static=True, default_factory=list)

    def nle(self, task, outer, inner):
        return outer * inner * task.horizon

    def __call__(self, *_, outer=None, inner=None, **__):
        self.calls.append((outer, inner))


@pytest.fixture
def model():
    task = make_task("linear-gaussian")
    return task, make_policy("static", task, key=jr.key(0))


def test_what_is_short_and_what_nothing_gets_through_is_not_timed(model):
    bound = Counted()
    assert bound_seconds(bound, *model, 100, 1000) == fewest_seconds(300_000)
    assert bound_seconds(bound, *model, 10**9, 10**9) == fewest_seconds(3 * 10**18) > DAY
    assert bound.calls == []


def test_what_may_be_long_is_timed_on_a_share_of_it(model, monkeypatch):
    bound = Counted()
    monkeypatch.setattr(estimate, "_seconds", lambda call: (call(), 2.0)[1])
    seconds = bound_seconds(bound, *model, 640, 4096 * 20_000)
    assert seconds == pytest.approx(2.0 * 10 * 20_000)
    assert bound.calls == [(64, 4096)]


def test_more_than_a_day_is_refused_with_the_time_in_words():
    require_day("sizes", DAY, fix="x")
    with pytest.raises(InvalidValueError, match=r"about 3\.0 days.*--long"):
        require_day("sizes", 3 * DAY, fix="x")
    assert in_words(800 * 365 * DAY) == "about 800 years"
