"""Names, units and ranges in the short form, and what is refused there."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from scorebed.errors import InvalidValueError
from scorebed.tasks.declare import measured, parameters, quantity, ranges, unbounded
from scorebed.tasks.spaces import Box, Quantity, Real


@pytest.mark.parametrize(
    ("text", "name", "unit"),
    [
        ("time [h]", "time", "h"),
        ("dose", "dose", ""),
        (" peak height  [µm s⁻¹] ", "peak height", "µm s⁻¹"),
        ("x []", "x", ""),
    ],
)
def test_a_unit_stands_in_brackets(text, name, unit):
    assert quantity(text) == Quantity(name, unit)


@pytest.mark.parametrize("text", ["", "[h]", "time [h", "time [h] [s]", "time h]", 3])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(InvalidValueError, match="the name of a quantity"):
        quantity(text)


def test_the_short_form_is_the_long_one():
    assert ranges({"time [h]": (0, 24), "dose [mg]": (1.0, 5.0)}) == Box(
        (Quantity("time", "h"), Quantity("dose", "mg")), (0.0, 1.0), (24.0, 5.0)
    )
    assert unbounded("x [m]", "y [m]", scale=40) == Real(
        (Quantity("x", "m"), Quantity("y", "m")), 40.0
    )
    assert measured("rate [1/h]", "amount") == (Quantity("rate", "1/h"), Quantity("amount"))
    prior = parameters(
        {("x [m]", "y [m]"): dist.Normal(1.0, 2.0), "gain": dist.LogNormal(0.0, 1.0)}
    )
    assert [str(q) for q in prior.quantities] == ["x [m]", "y [m]", "gain"]
    assert jnp.allclose(
        prior.from_latent(jnp.asarray([0.0, 1.0, 0.0])), jnp.asarray([1.0, 3.0, 1.0])
    )


BAD = {
    "no designs": (lambda: ranges({}), "expected a dict of names and ranges"),
    "a list of one value": (lambda: ranges({"dose": [1.0]}), "expected at least two finite"),
    "a range upside down": (lambda: ranges({"dose": (2.0, 1.0)}), "with low < high"),
    "an infinite range": (lambda: ranges({"dose": (0.0, float("inf"))}), "unbounded"),
    "a NaN": (lambda: ranges({"dose": (0.0, float("nan"))}), "two finite numbers"),
    "a name twice": (
        lambda: ranges({"dose [mg]": (0.0, 1.0), "dose [g]": (0.0, 1.0)}),
        "'dose' more than once",
    ),
    "no outcome": (measured, "got none"),
    "no parameters": (lambda: parameters({}), "expected a dict of names and distributions"),
    "a number for a prior": (lambda: parameters({"rate": 1.0}), "a distribution of numpyro"),
    "a discrete prior": (lambda: parameters({"n": dist.Poisson(3.0)}), "the discrete Poisson"),
    "a scale of zero": (lambda: unbounded("x", scale=0.0), "a positive number"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_wrong_declaration_says_what_is_wrong(fault):
    declare, words = BAD[fault]
    with pytest.raises(InvalidValueError, match=words):
        declare()
