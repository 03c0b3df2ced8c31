"""An experiment that an earlier version wrote: limited, lengthened, corrected, refined, with a
skipped step. It opens as it was and goes on.
"""

import json
import pathlib
import shutil

import pytest

from scorebed.runs import seal, strict_json
from scorebed.runs.load import load
from scorebed.session.session import Session

WRITTEN = pathlib.Path(__file__).parent / "written_before"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())


@pytest.fixture
def run(tmp_path):
    """A copy: opening a file of experiments may write to it."""
    return load(shutil.copytree(WRITTEN, tmp_path / "run"))


def test_an_earlier_file_opens_as_it_was_and_goes_on(run):
    with Session.open(run, experiment="a") as session:
        told = json.loads(json.dumps(session.summary()))
        assert {name: told[name] for name in EXPECTED["summary"]} == EXPECTED["summary"]
        exported = seal.unsealed(strict_json.loads(session.export_json()))
        assert exported == json.loads((WRITTEN / "exported.json").read_text())
        assert session.export_csv() == EXPECTED["csv"]
        assert session.foresee(0.3) == pytest.approx(EXPECTED["foresee"], rel=1e-5)
        assert session.observe(0.3).step == 4
        assert session.propose().design == pytest.approx(EXPECTED["foresee"], rel=1e-5)
        kinds = [session.undo() for _ in range(4)]
        assert [getattr(each, "kind", "step") for each in kinds] == [
            "step",
            "step",
            "refined",
            "planned",
        ]


def test_an_earlier_export_is_read(run, tmp_path):
    with (
        Session.open(run, experiment="a") as session,
        Session.import_json(run, WRITTEN / "exported.json", db=tmp_path / "second") as copy,
    ):
        assert copy.state == session.state
