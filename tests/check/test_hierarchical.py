"""A parameter of a hierarchical prior has its effect through others; a useless one has none."""

import numpy as np

from models.four_peaks import FourPeaks
from models.hierarchical import task
from scorebed.check.measured import _through_others


def test_the_mean_of_a_hierarchical_prior_is_not_called_useless():
    effective = np.asarray([False, False, True, True, True, True])  # the rates of the patients
    assert [q.name for q in task.prior.quantities][:2] == ["mean", "spread"]
    assert _through_others(task, 0, effective)
    assert _through_others(task, 1, effective)


def test_an_independent_parameter_without_effect_is():
    peaks = FourPeaks()
    effective = np.arange(peaks.prior.dim) != 3
    assert not _through_others(peaks, 3, effective)
