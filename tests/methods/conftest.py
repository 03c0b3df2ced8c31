"""What a test enters into a registry is taken out again after its module."""

from collections.abc import Iterator

import pytest

from scorebed.bounds import BOUNDS
from scorebed.methods import METHODS
from scorebed.policies import POLICIES
from scorebed.samplers import SAMPLERS
from scorebed.scores import SCORES


@pytest.fixture(autouse=True, scope="module")
def registries_as_they_were() -> Iterator[None]:
    tables = (METHODS, POLICIES, SCORES, SAMPLERS, BOUNDS)
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
