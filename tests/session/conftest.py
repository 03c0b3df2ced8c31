"""One run for all tests of this folder; every test has a file of experiments of its own."""

from pathlib import Path

import pytest
from live_runs import make_run

from scorebed.runs.load import Run, load
from scorebed.session.session import Session
from scorebed.session.store import Store


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A run of the linear-Gaussian task (three steps, one covariate within ±2) with an adaptive
    policy.
    """
    return make_run(tmp_path_factory.mktemp("live") / "run")


@pytest.fixture(scope="session")
def run(folder) -> Run:
    return load(folder)


@pytest.fixture
def db(tmp_path) -> Path:
    return tmp_path / "live.sqlite"


@pytest.fixture
def store(db):
    store = Store(db)
    yield store
    store.close()


@pytest.fixture
def session(run, store):
    return Session.create(run, db=store, experiment="bench", seed=3)
