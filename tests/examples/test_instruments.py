"""The agent and the trial handler of the examples, without a beamline and without a subject."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "session"))  # for live_runs

from live_runs import make_run  # noqa: E402

from scorebed.errors import ConflictError  # noqa: E402
from scorebed.runs.load import load  # noqa: E402
from scorebed.session.session import Session  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(make_run(tmp_path_factory.mktemp("instruments") / "run"))


@pytest.fixture
def session(run, tmp_path):
    with Session.create(run, db=tmp_path / "live.sqlite", seed=3) as session:
        yield session


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_agent_asks_for_a_batch_and_is_told_in_another_order(session):
    agent = example("bluesky_agent").ExperimentAgent(session)
    doc, points = agent.ask(2)
    assert doc == {"proposal": [1, 2], "step": [1, 2]}
    moved = points[1] + 1e-4  # where the motor came to stand
    told = agent.tell(moved, 0.5)
    assert told["x"] == [[pytest.approx(float(moved[0]))]]
    assert session.state.records[0].proposal.id == 2
    assert agent.tell(points[0], 0.3)["step"] == [2]
    assert set(agent.report()) == {"coefficient", "information"}
    assert len(agent.ask(2)[1]) == 1  # one step is left
    agent.tell(agent.ask(1)[1][0], -0.1)
    assert agent.ask(2) == ({"proposal": [], "step": []}, [])


def test_a_handler_gives_the_designs_of_the_session_and_stores_the_answers(session, run, tmp_path):
    trials = example("trial_handler").ExperimentHandler(session)
    shown = []
    for intensity in trials:
        shown.append(intensity)
        assert (trials.intensity, trials.thisTrialN) == (intensity, len(shown) - 1)
        trials.addResponse(0.5 * intensity, 1.25 if len(shown) == 2 else None)
        trials.addOtherData("reaction time", 0.31)
    assert session.state.complete
    with pytest.raises(StopIteration):
        trials.next()
    with Session.create(run, db=tmp_path / "python.sqlite", seed=3) as python:
        for number, intensity in enumerate(shown, start=1):
            assert python.propose().design == (intensity,)
            python.observe(0.5 * intensity, 1.25 if number == 2 else None)
    assert "reaction time: 0.31" in trials.saveAsText(tmp_path / "subject.csv")
    assert (tmp_path / "subject.csv").exists()
    trials.addResponse(0.5 * shown[-1])  # sent twice, stored once
    with pytest.raises(ConflictError):
        trials.addResponse(9.0)
    np.testing.assert_array_equal(session.state.records[1].used, [1.25])
