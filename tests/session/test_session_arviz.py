"""The posterior in ArviZ's format, of whichever version is there."""

import sys
import types

import numpy as np
import pytest

from scorebed.errors import ScorebedError


@pytest.fixture
def measured(session):
    session.propose()
    session.observe(0.5)
    session.skip()
    session.observe(-1.0, 1.25)
    return session


def test_arviz_reads_posterior_prior_and_data(measured):
    pytest.importorskip("arviz", reason="needs arviz: pip install 'scorebed[arviz]'")
    found = measured.to_arviz()
    posterior = measured.posterior()
    drawn = found["posterior"]["coefficient"]
    assert drawn.dims == ("chain", "draw")
    np.testing.assert_array_equal(drawn.values[0], posterior.theta[:, 0])
    assert float(drawn.mean()) == pytest.approx(posterior.marginals[0].mean)
    assert found["prior"]["coefficient"].shape == drawn.shape
    assert found["observed_data"]["response"].dims == ("step",)
    assert found["observed_data"]["step"].values.tolist() == [1, 3]
    assert found["observed_data"]["response"].values.tolist() == [0.5, -1.0]
    assert found["constant_data"]["covariate"].values[1] == 1.25


@pytest.mark.parametrize(("version", "nested"), [("0.23.4", False), ("1.2.0", True)])
def test_each_version_is_called_as_it_wants_to_be(measured, monkeypatch, version, nested):
    """Version 1 takes one mapping of groups, earlier ones take a keyword for each."""
    calls = []

    def from_dict(*groups, **options):
        calls.append((groups, options))
        return "made"

    stand_in = types.SimpleNamespace(__version__=version, from_dict=from_dict)
    monkeypatch.setitem(sys.modules, "arviz", stand_in)
    assert measured.to_arviz() == "made"
    ((groups, options),) = calls
    given = groups[0] if nested else {k: v for k, v in options.items() if k not in DESCRIBE}
    assert len(groups) == int(nested)
    assert set(given) == {"posterior", "prior", "observed_data", "constant_data"}
    assert given["posterior"]["coefficient"].shape == (1, 2048)
    assert options["coords"] == {"step": [1, 3]}
    assert options["dims"] == {"response": ["step"], "covariate": ["step"]}


DESCRIBE = ("coords", "dims")


def test_without_the_package_the_way_to_it_is_named(measured, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ScorebedError, match=r"Fix: pip install 'scorebed\[arviz\]'"):
        measured.to_arviz()
