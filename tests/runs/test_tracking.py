"""A run as TensorBoard shows it, and as pandas tables."""

import math
import re
import shutil
import sys
from pathlib import Path

import pytest

import scorebed as sb
from scorebed.cli import main
from scorebed.errors import InvalidValueError
from scorebed.runs.folder import RunFolder
from scorebed.runs.tables import metrics_table
from scorebed.runs.tracking import TENSORBOARD, TensorBoard

FINISHED = Path(__file__).parents[1] / "fixtures" / "runs-v1" / "score"
LINES = [
    {"stage": "score-0", "step": 1, "seconds": 1.0, "y": 0.5, "xi": 2.0},
    {"stage": "score-0", "step": 2, "seconds": 1.5, "y": math.nan, "xi": 3.0},
    {"stage": "policy-0-0", "step": 20, "seconds": 2.0, "surrogate": [-1.0, -2.0], "lower": [1, 4]},
    {"stage": "policy-0-1", "step": 20, "seconds": 2.0, "surrogate": [-3.0]},
    {"stage": "bounds-0", "step": 1, "seconds": 0.2},
]


@pytest.fixture
def folder(tmp_path, config):
    with RunFolder.create(tmp_path / "run", config) as folder:
        yield folder


def shown(folder: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Runs, tags and points, as TensorBoard itself reads them."""
    multiplexer = pytest.importorskip(
        "tensorboard.backend.event_processing.plugin_event_multiplexer",
        reason="needs tensorboard: pip install 'scorebed[tracking]'",
    )
    found = multiplexer.EventMultiplexer().AddRunsFromDirectory(str(folder))
    found.Reload()
    runs = {}
    for name in found.Runs():
        tensors = found.GetAccumulator(name)
        runs[name] = {
            tag: [(e.step, float(e.tensor_proto.float_val[0])) for e in tensors.Tensors(tag)]
            for tag in tensors.Tags()["tensors"]
        }
    return runs


EXPECTED = {
    "score-0": {"score/y": [(1, 0.5)], "score/xi": [(1, 2.0), (2, 3.0)]},
    "policy-0-0/0": {"policy/surrogate": [(20, -1.0)], "policy/lower": [(20, 1.0)]},
    "policy-0-0/1": {"policy/surrogate": [(20, -2.0)], "policy/lower": [(20, 4.0)]},
    "policy-0-1": {"policy/surrogate": [(20, -3.0)]},
}


def test_every_line_of_metrics_is_shown_once_also_by_a_run_that_goes_on(folder):
    pytest.importorskip("tensorboard")
    folder.log = TensorBoard(folder)
    for line in LINES[:3]:
        folder.append_metrics(line)
    folder.log = TensorBoard(folder)  # another process goes on
    for line in LINES[3:]:
        folder.append_metrics(line)
    assert shown(folder.path / TENSORBOARD) == EXPECTED


def test_steps_that_are_taken_back_are_no_longer_shown(folder):
    pytest.importorskip("tensorboard")
    folder.log = TensorBoard(folder)
    for line in LINES:
        folder.append_metrics(line)
    folder.truncate_metrics("score-0", 1)
    folder.append_metrics(LINES[1] | {"xi": 7.0})
    folder.truncate_metrics("policy-0-0", -1)
    assert shown(folder.path / TENSORBOARD) == {
        "score-0": {"score/y": [(1, 0.5)], "score/xi": [(1, 2.0), (2, 7.0)]},
        "policy-0-1": EXPECTED["policy-0-1"],
    }


def test_a_finished_run_can_still_be_shown(tmp_path, capsys):
    """Its whole record: both stages, and bounds."""
    pytest.importorskip("tensorboard")
    run = Path(shutil.copytree(FINISHED, tmp_path / "run"))
    with pytest.raises(SystemExit, match="0"):
        main(["resume", str(run), "--log", "tensorboard"])
    found, loaded = shown(run / TENSORBOARD), sb.load(run)
    assert set(found) == {"score-0", "policy-0-0", "bounds/policy"}
    assert found["bounds/policy"]["bounds/lower"][0][1] == pytest.approx(loaded.record.bounds.lower)
    lines = RunFolder.open(run).read_metrics("score-0")
    assert [y for _, y in found["score-0"]["score/y"]] == pytest.approx([e["y"] for e in lines])
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):  # goes on without being told
        main(["resume", str(run)])
    assert shown(run / TENSORBOARD) == found


@pytest.mark.parametrize(
    ("log", "words"), [("tensorboard", r"scorebed\[tracking\]"), ("tensorbord", "'tensorboard'")]
)
def test_a_log_that_cannot_be_kept_is_refused_before_there_is_a_run(
    log, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SystemExit, match="2"):
        main(["train", "linear-gaussian", "--log", log, "--out", "run"])
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_metrics_are_a_table_with_a_row_for_every_policy():
    pytest.importorskip("pandas")
    table = metrics_table(LINES)
    assert table.columns.tolist()[:4] == ["stage", "step", "policy", "seconds"]
    rows = table[table.stage == "policy-0-0"]
    assert rows.policy.tolist() == [0, 1]
    assert rows.lower.tolist() == [1, 4]
    assert table[table.stage == "score-0"].policy.isna().all()
    assert table.groupby("stage").step.max().to_dict()["score-0"] == 2
    assert metrics_table([]).empty


def test_a_run_gives_its_ledger_and_bounds_as_tables():
    pytest.importorskip("pandas")
    run = sb.load(FINISHED)
    ledger, bounds = run.ledger(), run.bounds()
    assert ledger[ledger.book == "training"].nle.sum() == run.record.nle
    assert ledger[ledger.book == "evaluation"].nle.item() == run.record.nle_evaluation
    assert bounds.lower.tolist() == [run.record.bounds.lower]
    assert bounds[["run", "designs", "repeat"]].iloc[0].tolist() == ["score", "dad", 0]
    assert len(run.metrics()) == len(RunFolder.open(FINISHED).read_metrics())


def test_tables_without_pandas_name_the_way_to_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidValueError, match=r"pip install 'scorebed\[pandas\]'"):
        sb.load(FINISHED).metrics()
