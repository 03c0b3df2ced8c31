"""`scorebed paper` by its command line: a row is run, interrupted, gone on with, kept and shown."""

import csv
import json
import shutil

import pytest

from scorebed.cli._app import run as main
from scorebed.cli._progress import Bars

TINY = [
    "policy_training.steps=2",
    "policy_training.batch=2",
    "policy_training.monitor_every=2",
    "policy_training.monitor_inner=2",
    "pce.inner=1",
    "evaluation.outer=4",
    "evaluation.tight_outer=0",
    "evaluation.inner=8",
    "score.steps=1",  # for other rows
]
SETTINGS = [part for value in TINY for part in ("--set", value)]
ROW = "pendulum-pce-P1"


def command(out, *more, item="table2", scale="0.001"):
    return [
        *("paper", item, "--scale", scale, "--repeats", "2"),
        *("--rows", ROW, "--out", str(out), *SETTINGS, *more),
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A row that was interrupted after its first bounds, and gone on with by the same command: its
    folder, and the stages that were carried out before and after.
    """
    out = tmp_path_factory.mktemp("paper") / "out"
    stages = {"before": [], "after": []}
    end = Bars.end

    def noted(part, last=""):
        def noting(self, line):
            stages[part].append(self.stage)
            end(self, line)
            if self.stage == last:
                raise KeyboardInterrupt

        return noting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bars, "end", noted("before", "bounds-0"))
        with pytest.raises(KeyboardInterrupt):
            main(command(out))
        assert not (out / f"records/{ROW}.json").exists()
        patch.setattr(Bars, "end", noted("after"))
        assert main(command(out)) == 0
    return out, stages


def test_an_interrupted_row_goes_on_and_is_kept(finished):
    out, stages = finished
    assert stages["before"] == [ROW, "policy-0-0", "policy-1-0", "bounds-0"]
    assert stages["after"] == [ROW, "bounds-1", "bounds-tight-0", "bounds-tight-1"]
    record = json.loads((out / f"records/{ROW}.json").read_text())
    result = record["result"]
    assert record["settings"]["scale"] == 0.001
    for each in result["repeats"]:
        assert {"lower", "upper", "tight", "nle"} <= set(each)
    # 2 steps of 2 experiments, 50 outcomes with 1 + 1 parameters
    assert [each["nle"] for each in result["repeats"]] == [400, 400]
    assert result["nle"] == 800
    assert result["config"]["pce"]["inner"] == 1
    assert result["seconds"]["training"] > 0


def test_the_table_has_our_row_beside_the_papers(finished, capsys):
    out, _ = finished
    for name in ("table2.md", "table2.csv", "table2.png", "table2.html"):
        assert (out / name).stat().st_size > 0
    rows = list(csv.DictReader((out / "table2.csv").read_text().splitlines()))
    assert len(rows) == 33
    ours = next(row for row in rows if row["row"] == ROW)
    record = json.loads((out / f"records/{ROW}.json").read_text())["result"]["repeats"]
    assert float(ours["lower"]) == pytest.approx((record[0]["lower"] + record[1]["lower"]) / 2)
    assert (ours["paper_lower"], ours["paper_lower_se"]) == ("3.91", "0.01")
    assert [row["lower"] for row in rows if row["row"] != ROW] == [""] * 32
    text = (out / "table2.md").read_text()
    assert "| PCE (P=1) | " in text
    assert "**3.95 ± 0.02**" in text, "the paper's bold"
    assert "1 of 33 rows" in text
    page = (out / "table2.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "src=" not in page
    capsys.readouterr()
    assert main(command(out, "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"]["repeats"] == 2
    assert answer["items"][0]["item"] == "table2"


def test_a_finished_row_is_not_run_again_though_its_folder_is_gone(finished, tmp_path, capsys):
    out, _ = finished
    kept, elsewhere = tmp_path / "kept", tmp_path / "new"
    shutil.copytree(out / "records", kept)
    assert main(command(elsewhere, "--records", str(kept))) == 0
    assert not (elsewhere / "runs" / ROW).exists()
    assert (elsewhere / "table2.md").read_bytes() == (out / "table2.md").read_bytes()
    pages = tmp_path / "pages"
    assert main(command(pages, "--records", str(kept), "--render-only")) == 0
    assert (pages / "table2.html").read_bytes() == (out / "table2.html").read_bytes()
    assert not (pages / "runs").exists()
    capsys.readouterr()


def test_other_settings_are_refused_in_one_line(finished, capsys):
    out, _ = finished
    assert main(command(out, scale="0.002")) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{ROW}.json" in told
    assert "scale = 0.001, expected scale = 0.002" in told
    (out / f"records/{ROW}.json").rename(out / "aside.json")
    try:
        assert main(command(out, "--seed", "1")) == 2
        assert "one begun with seed = 0, expected seed = 1" in capsys.readouterr().err
    finally:
        (out / "aside.json").rename(out / f"records/{ROW}.json")


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(finished, tmp_path, capsys):
    out, _ = finished
    arguments = ["paper", "table1", "--scale", "0.01", "--dry-run", "--rows", "*-2d-*"]
    assert main(arguments) == 2
    assert "unknown row" in capsys.readouterr().err
    arguments[-1] = "location-finding-score-P?"
    assert main([*arguments, "--out", str(tmp_path / "none"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["row"] for row in rows] == [f"location-finding-score-P{p}" for p in (1, 5)]
    assert "steps 30,400, batch 64" in rows[0]["sizes"]
    assert not (tmp_path / "none").exists()
    assert main(command(out, "--dry-run")) == 0
    assert "finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["paper", "table3", "--scale", "1"], "did you mean 'table2'"),
        (["paper", "table1"], "--scale or --hours, got neither"),
        (["paper", "table1", "--scale", "1", "--hours", "1"], "got --scale and --hours"),
        (["paper", "table1", "--scale", "2"], "--scale, got 2"),
        (["paper", "table1", "--scale", "nan"], "'nan'"),
        (["paper", "table1", "--scale", "1", "--policies", "theirs"], "theirs"),
        (["paper", "mlmc", "--scale", "1", "--rows", "mlmc"], "unknown row, got 'mlmc'"),
        (["paper", "mlmc", "--scale", ".1", "--set", "mlmc.tua=1", "--dry-run"], "mlmc.tau"),
    ],
)
def test_bad_input_is_one_line(arguments, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    answer = capsys.readouterr().err
    assert told in answer
    assert answer.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_pages_of_records_need_no_settings_and_fill_a_page(finished, tmp_path, capsys):
    """`--render-only` alone shows what the records are of; a Markdown file keeps what it says
    around.
    """
    out, _ = finished
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("above\n<!-- table2 -->\nof yesterday\n<!-- end table2 -->\nbelow\n")
    records = ["--records", str(out / "records"), "--render-only"]
    arguments = ["paper", "all", *records, "--out", str(tmp_path / "docs/pages")]
    assert main([*arguments, "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("above\n<!-- table2 -->\n")
    assert text.endswith("<!-- end table2 -->\nbelow\n")
    assert "of yesterday" not in text
    assert "(pages/table2.png)" in text
    assert "--scale 0.001 --repeats 2" in text
    again = page.read_bytes()
    assert main([*arguments, "--page", str(page)]) == 0
    assert page.read_bytes() == again
    assert {path.stem for path in (tmp_path / "docs/pages").iterdir()} == {"table2"}
    capsys.readouterr()
