"""The report of a run: it stands alone, shows the numbers of the record, escapes what it shows, and
knows unfinished runs.
"""

import base64
import html.parser
import json
import re

import equinox as eqx
import jax.random as jr
import pytest

from scorebed.cli import main
from scorebed.errors import ScorebedError
from scorebed.policies import make_policy
from scorebed.report import write_report
from scorebed.report.tables import settings_rows
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.config import from_values, to_toml
from scorebed.runs.evaluation import ceiling_sentence, tighter
from scorebed.runs.serialisation import save_leaves
from scorebed.tasks import make_task

EVIL = "<script>alert('x')</script>&amp;"


def bounds(lower, saturated=0.0):
    return {
        "lower": lower,
        "lower_se": 0.0125,
        "upper": lower + 0.25,
        "upper_se": 0.0375,
        "outer": 2048,
        "inner": 1000000,
        "ceiling": 13.8155,
        "saturated": saturated,
    }


RECORD = bounds(1.2345) | {
    "nle": 1234567,
    "nle_stages": {"score-0": 1000000, "policy-0-0": 234567},
    "nle_evaluation": 6144006144,
    "seconds": {"score-0": 1234.56, "policy-0-0": 5.0, "total": 1239.6},
    "references": {
        "random": bounds(0.7, 0.02)
        | {"designs": "uniform <designs> in the box", "advantage": 0.5345, "advantage_se": 0.0042},
        "static": bounds(0.625) | {"designs": "static designs", "lower": None},
    },
}
GRADIENT = {"squared_bias": 0.25, "variance": 100.0, "crossover": 400.0}
DIAGNOSIS = {
    "truth": "smc",
    "outer": 512,
    "inner": None,
    "particles": 2048,
    "verdict": f"Good: <the> bias is small {EVIL}",
    "relative_bias": 0.0123,
    "relative_bias_upper": 0.045,
    "gradient": {"trained": GRADIENT, "untrained": GRADIENT | {"crossover": 7.0}},
    "score_error": {"sampler": {"y": 0.0625, "y_se": 0.004, "xi": 0.5, "xi_se": 0.03}},
    "coverage": {"outside": 0.25, "outside_by_step": [0.0, 0.5]},
    "conditioning": {"policy": {"10%": 2.0, "median": 43.21, "90%": None}},
    "nle": 2840480000,
}
PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
METRICS = [
    *(
        {"stage": "score-0", "step": s, "seconds": 2.0 * s, "xi": 8.0 / s, "y": 1.0 / s}
        for s in (1, 2, 3)
    ),
    *(
        {"stage": "policy-0-0", "step": s, "seconds": 1.0, "surrogate": [-1.0, -2.0]}
        for s in (1, 3)
    ),
    {
        "stage": "policy-0-0",
        "step": 4,
        "seconds": 5.0,
        "surrogate": [-1.0, -2.0],
        "lower": [0.5, None],
    },
    {
        "stage": "policy-0-0",
        "step": 8,
        "seconds": 6.0,
        "surrogate": [-1.0, -2.0],
        "lower": [0.6, 0.7],
    },
    {"stage": "static", "step": 2, "seconds": 1.0, "surrogate": [-1.0], "lower": [0.4]},
]


def make_run(path, *, record=RECORD, metrics=METRICS, policy=True, **values):
    """The files of a run, by hand."""
    path.mkdir()
    rates = {"steps": 8, "batch": 4, "learning_rate": 1e-3}
    config = from_values(
        {
            "task": "linear-gaussian",
            "method": "score",
            "preset": "quick",
            "policy": "static",
            "policies": 2,
            "seed": 7,
        }
        | {"score": rates | {"kind": "particles", "width": 4, "clip": 1.0}}
        | {
            "policy_training": rates
            | {"schedule": "constant", "monitor_every": 4, "monitor_inner": 9}
        }
        | {"evaluation": {"outer": 2048, "inner": 1000000, "select_outer": 8, "select_inner": 9}}
        | values
    )
    (path / "config.toml").write_text(to_toml(config))
    if record is not None:
        (path / "record.json").write_text(json.dumps(record))
    if metrics is not None:
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if policy:
        task = make_task("linear-gaussian")
        arrays = eqx.filter(make_policy("static", task, key=jr.key(0)), eqx.is_array)
        save_leaves(
            path / "policy-0.safetensors", arrays, {"task": fingerprint(task), "policy": "static"}
        )
    return path


class Page(html.parser.HTMLParser):
    """The tables by class as rows of text, all tags with their attributes, and all text outside of
    style.
    """

    VOID = frozenset({"meta", "br", "hr", "img", "link"})

    def __init__(self, text):
        super().__init__()
        self.tables, self.tags, self.open, self.text = {}, [], [], ""
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = self.tables.setdefault(dict(attrs)["class"], [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("runs") / "<b>run", score_run=EVIL)
    (run / "choice-0.json").write_text('{"lower": [0.6, 0.7], "best": 1}')
    (run / "env.json").write_text(json.dumps({"python": "3.x", "device": {"kind": EVIL}}))
    path = write_report(run)
    assert path == run / "report.html"
    return path.read_text()


def test_the_tables_hold_the_numbers_of_the_record(finished):
    tables = Page(finished).tables
    assert [row[:6] for row in tables["bounds"][1:]] == [
        ["policy (static)", "1.234 ± 0.013", "1.484 ± 0.037", "—", "2,048", "1,000,000"],
        ["random", "0.700 ± 0.013", "0.950 ± 0.037", "+0.534 ± 0.004", "2,048", "1,000,000"],
        ["static", "— ± 0.013", "0.875 ± 0.037", "—", "2,048", "1,000,000"],
    ]
    assert [row[6] for row in tables["bounds"][2:]] == [
        "uniform <designs> in the box",
        "static designs",
    ]
    assert dict(tables["ledger"][1:]) == {
        "score-0": "1,000,000",
        "policy-0-0": "234,567",
        "training": "1,234,567",
        "reported bounds": "6,144,006,144",
    }
    assert dict(tables["seconds"][1:]) == {
        "score-0": "1,234.6",
        "policy-0-0": "5.0",
        "total": "1,239.6",
    }
    settings = {key: value for key, value, _ in tables["settings"][1:]}
    assert settings["evaluation.inner"] == "1,000,000"
    assert settings["seed"] == "7"
    assert settings["score.learning_rate"] == "0.001"
    assert dict(tables["versions"]) == {"python": "3.x", "device.kind": EVIL}


def test_the_page_needs_nothing_beside_it(finished):
    page = Page(finished)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object"}
    targets = [
        v for _, attrs in page.tags for k, v in attrs.items() if k in ("src", "href", "xlink:href")
    ]
    assert targets
    assert all(target.startswith(("#", "data:")) for target in targets)
    assert all(url.startswith("#") for url in re.findall(r"url\(['\"]?([^)]*)", finished))
    assert "@import" not in finished


def test_figures_share_no_ids_and_point_to_their_own(finished):
    page = Page(finished)
    assert (
        sum(tag == "svg" for tag, _ in page.tags) == 4
    )  # two terms of the loss, the bound, the experiments
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    pointed = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', finished)
    assert {a or b for a, b in pointed} <= set(ids)


def test_what_is_shown_is_escaped(finished):
    page = Page(finished)
    assert "<script" not in finished
    assert "<b>run" not in finished
    settings = {key: value for key, value, _ in page.tables["settings"][1:]}
    assert settings["score_run"] == EVIL  # parsed back, the very characters
    assert "<b>run" in page.text


def test_a_diagnosis_is_shown_in_words_figures_and_its_picture(tmp_path):
    run = make_run(tmp_path / "run", metrics=None, policy=False)
    (run / "diagnosis.json").write_text(json.dumps(DIAGNOSIS))
    (run / "diagnosis.png").write_bytes(PNG)
    page = Page(write_report(run).read_text())
    assert DIAGNOSIS["verdict"] in page.text  # escaped, and parsed back
    assert "None yet" not in page.text
    assert page.tables["diagnosis"] == [
        ["gradient bias / gradient norm", "1.23%", "at most 4.50%"],
        ["batch size at which bias outweighs noise", "400", ""],
        ["relative score error, y-part, sampler designs", "0.0625", "± 0.004"],
        ["relative score error, ξ-part, sampler designs", "0.5", "± 0.03"],
        ["designs not covered by the sampler", "25.0%", "worst step 50%"],
        ["median condition number of ∂y/∂ξ, policy designs", "43.2", ""],
        ["ground truth", "smc", "2,048 SMC particles"],
        ["trajectories", "512", ""],
        ["likelihood evaluations", "2,840,480,000", ""],
    ]
    (picture,) = (attrs["src"] for tag, attrs in page.tags if tag == "img")
    assert base64.b64decode(picture.removeprefix("data:image/png;base64,")) == PNG
    assert ("p", {}) in page.tags
    assert ("p", {"class": "warning"}) not in page.tags


def test_a_bad_verdict_is_a_warning_and_a_diagnosis_with_gaps_has_dashes(tmp_path):
    run = make_run(tmp_path / "run", metrics=None, policy=False)
    gaps = {
        "verdict": "Undecided: nothing is known.",
        "relative_bias": None,
        "gradient": None,
        "truth": "exact",
    }
    (run / "diagnosis.json").write_text(json.dumps(gaps))
    page = Page(write_report(run).read_text())
    assert ("p", {"class": "warning"}) in page.tags
    assert "img" not in {tag for tag, _ in page.tags}
    assert page.tables["diagnosis"][0] == ["gradient bias / gradient norm", "—", "at most —"]
    assert ["ground truth", "exact", ""] in page.tables["diagnosis"]
    (run / "diagnosis.json").write_text("[1]")
    with pytest.raises(ScorebedError, match=r"diagnosis\.json.* expected a JSON object"):
        write_report(run)


def test_without_a_diagnosis_the_command_for_one_is_named(tmp_path):
    run = make_run(tmp_path / "run", metrics=None, policy=False)
    assert (
        f"None yet: scorebed diagnose {run} compares the score with the truth."
        in Page(write_report(run).read_text()).text
    )


def test_equal_folders_give_equal_pages(tmp_path):
    run = make_run(tmp_path / "run")
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


@pytest.mark.parametrize(("saturated", "warned"), [(0.05, False), (0.062, True)])
def test_saturated_bounds_are_warned_of(tmp_path, saturated, warned):
    record = RECORD | {"saturated": saturated, "bound": "contrastive", "task": "pendulum"}
    run = make_run(tmp_path / "run", record=record, metrics=None, policy=False)
    text = Page(write_report(run).read_text()).text
    assert (
        "6% of the trajectories of the policy are saturated: the lower bound cannot exceed" in text
    ) is warned
    assert (f"raise evaluation.inner, or: scorebed evaluate {run} --bound tight" in text) is warned
    # Of designs that are no policy of the run, of some parameters alone or without a density there
    # are no such bounds.
    assert (
        tighter(record | {"interest": ["mass"]}, "run")
        == tighter(record | {"bound": "posterior"}, "run")
        == ""
    )
    assert (
        tighter(record | {"task": "my.py:Mine"}, "run")
        == "scorebed evaluate run --task my.py:Mine --bound tight"
    )
    assert ceiling_sentence(bounds(0.7, 0.5), "random designs").endswith("raise evaluation.inner.")


def test_an_unfinished_run_shows_what_it_has(tmp_path):
    page = Page(
        write_report(
            make_run(tmp_path / "run", record=None, metrics=METRICS[:4], policy=False)
        ).read_text()
    )
    for words in (
        "not finished",
        "scorebed resume",
        "No bounds yet",
        "no trained policy yet",
        "No counts yet",
    ):
        assert words in page.text
    assert "no env.json" in page.text
    assert dict(page.tables["seconds"][1:]) == {"score-0": "6.0", "policy-0-0": "1.0"}
    assert sum(tag == "svg" for tag, _ in page.tags) == 2


def test_a_run_of_nothing_but_settings_and_one_with_a_damaged_policy(tmp_path):
    run = make_run(tmp_path / "run", record=None, metrics=None, policy=False)
    assert "metrics.jsonl has no line" in Page(write_report(run).read_text()).text
    (run / "policy-0.safetensors").write_bytes(b"torn")
    assert "The policy cannot be shown: " in Page(write_report(run).read_text()).text


def test_the_command_names_the_file_and_refuses_what_is_no_run(tmp_path, capsys):
    run = make_run(tmp_path / "run", metrics=None, policy=False)
    for options, read in (([], str.strip), (["--json"], lambda out: json.loads(out)["report"])):
        with pytest.raises(SystemExit) as exit_:
            main(["report", str(run), *options])
        assert (exit_.value.code, read(capsys.readouterr().out)) == (0, str(run / "report.html"))
    (run / "record.json").write_text("[]")
    for wrong in (tmp_path, run):
        with pytest.raises(ScorebedError, match=r"\. Fix: "):
            write_report(wrong)
        with pytest.raises(SystemExit) as exit_:
            main(["report", str(wrong)])
        assert exit_.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_settings_are_those_that_the_run_uses_with_their_meanings():
    names = {"task": "pendulum", "method": "random", "preset": "quick", "policy": "random"}
    sizes = {"outer": 20000, "inner": 9, "select_outer": 8, "select_inner": 9}
    rows = settings_rows(from_values(names | {"seed": 7, "evaluation": sizes}))
    values = {key: value for key, value, _ in rows}
    assert (values["seed"], values["evaluation.outer"]) == ("7", "20,000")
    assert {key.split(".")[0] for key in values if "." in key} == {"evaluation"}
    assert all(meaning for _, _, meaning in rows)
