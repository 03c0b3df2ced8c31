"""The picture of `check`: designs from lists have a map and an axis of their own."""

import io

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
import pytest

from scorebed.plots import check
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges
from scorebed.tasks.spaces import Space


class Assay(IID, Gaussian):
    horizon = 2
    prior = parameters({"affinity": dist.Normal(0.0, 1.0)})
    outcomes = measured("signal")
    additive_noise = True
    designs: Space = eqx.field(static=True)

    def mean(self, theta, state, xi):
        del state
        return jnp.stack([theta[0] * xi.sum()])

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [0.1]


@pytest.mark.parametrize(
    ("designs", "labels"),
    [
        ({"dilution": [1, 10, 100], "assay": ["A", "B"]}, {"1", "10", "100", "A", "B"}),
        ({"time": (0.0, 1.0), "assay": ["A", "B"]}, {"A", "B"}),
        ({"assay": ["A", "B", "C"]}, {"A", "B", "C"}),
    ],
    ids=["two lists", "a range and a list", "one list"],
)
def test_designs_from_lists_are_drawn(designs, labels, monkeypatch):
    monkeypatch.setattr(check, "PREDICTED", 4)
    figure = check.draw_check(Assay(designs=ranges(designs)), "Assay", key=jr.key(0))
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    right = figure.subfigs[0].subfigs[1]
    shown = {
        tick.get_text()
        for ax in right.axes
        for tick in [*ax.get_xticklabels(), *ax.get_yticklabels()]
    }
    assert labels <= shown
