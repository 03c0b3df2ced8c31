"""A network is exported in place of a policy, and its loss is written down."""

import functools
import json

import pytest

pytest.importorskip("flatbuffers", reason="exporting needs flatbuffers: pip install flatbuffers")
pytest.importorskip("onnx", reason="exporting needs onnx: pip install onnx")

from live_runs import make_run

from scorebed.cli._app import run as command
from scorebed.errors import InvalidValueError
from scorebed.export import imitation
from scorebed.export.folder import export_policy
from scorebed.runs.load import load

SIZES = ["--distil", "plan", "--experiments", "4", "--outer", "4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("imitation") / "run", "linear-gaussian")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(imitation, "distil", functools.partial(imitation.distil, steps=2))


@pytest.mark.slow
def test_the_folder_has_a_network_and_says_what_it_loses(run, tmp_path, capsys):
    assert command(["export", str(run), "--out", str(tmp_path / "a"), *SIZES, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    made = manifest["distilled"]
    assert (manifest["policy"], made["of"], made["outer"]) == ("Plan", "DAD", 4)
    assert manifest["onnx"]["programs"] == ["init", "design", "update"]
    expected = manifest["expected"]
    assert expected["lower"] == pytest.approx(expected["upper"], abs=0.05)
    behind = f"{made['behind']:.3f} ± {made['behind_se']:.3f} nats"
    assert behind in (tmp_path / "a" / "README.md").read_text()
    assert (tmp_path / "a" / "README.md").read_text().count("scorebed live") == 0


def test_without_it_the_folder_is_as_before(run, tmp_path):
    assert "distilled" not in export_policy(run, tmp_path / "b")


def test_a_policy_that_is_no_network_is_refused(run, tmp_path):
    with pytest.raises(InvalidValueError, match="the network that imitates a policy"):
        export_policy(load(run), tmp_path / "c", distil="random", experiments=2, outer=2)
    assert not (tmp_path / "c").exists()
