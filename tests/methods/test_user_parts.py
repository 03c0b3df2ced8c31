"""A user's own method, policy, kind of score, sampler, bound and task, each from a file, by the
command line: as if they were built in, named again whenever such a run is read, and compared with
what they were.
"""

import contextlib
import io
import json
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from my_parts import FILES, write

import scorebed as sb
from scorebed.cli._app import run
from scorebed.runs.execution import job_for
from scorebed.runs.stage import StageCheckpointer
from scorebed.runs.user_parts import METHOD, POLICY, SAMPLER, SCORE_KIND, read_part
from scorebed.runs.user_task import read_task

POLICIES = [
    *("policy_training.batch=16", "policy_training.monitor_every=10"),
    "policy_training.monitor_inner=32",
]
BOUNDS = [
    "evaluation.outer=16",
    "evaluation.tight_outer=0",
    "evaluation.inner=64",
    "evaluation.references=false",
]
BATCH, T = 16, 3


def options(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


class Answer(NamedTuple):
    """How a command line ended, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> dict:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def refusal(self) -> str:
        """The one line with which it was refused."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1), self
        assert self.err.startswith("error: ")
        return self.err


def scorebed(*arguments) -> Answer:
    """Carry out a command line in this process; 130 if it was interrupted."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run([str(argument) for argument in arguments])
        except KeyboardInterrupt:
            code = 130
    return Answer(code, out.getvalue(), err.getvalue())


# ---- a method

STEP = BATCH * (3 + 1) * T  # likelihood evaluations of a step, with `contrasts = 3`
SIZES = ["contrast.contrasts=3", "policy_training.steps=40", *POLICIES, *BOUNDS]


class Made(NamedTuple):
    """A run of a user's method."""

    path: Path
    method: str
    stopped: Answer
    resumed: Answer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Trained within a budget of twenty steps, stopped in the middle of them, and resumed."""
    folder = tmp_path_factory.mktemp("method")
    method, path = write(folder, "method"), folder / "run"
    on_block = StageCheckpointer._on_block

    def stop_at_ten(self, block):
        on_block(self, block)
        if block.step == 10:
            raise KeyboardInterrupt

    train = ["train", "linear-gaussian", "--method", method, "--policy", "static"]
    train += ["--budget", 20 * STEP + 5, *options(*SIZES), "--out", path]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageCheckpointer, "_on_block", stop_at_ten)
        stopped = scorebed(*train)
    write(folder, "method", more="\n# changed\n")
    changed = scorebed("resume", path, "--method", method).refusal()
    assert "a file that has changed since the run began" in changed
    write(folder, "method")
    return Made(path, method, stopped, scorebed("resume", path, "--method", method, "--json"))


def test_a_run_of_a_users_method_is_kept_when_it_is_stopped(made):
    assert made.stopped.code == 130
    again = f"Go on with: scorebed resume {made.path} --method {made.method}\n"
    assert made.stopped.err.endswith(again)


def test_its_settings_are_a_table_of_its_own(made):
    values = tomllib.loads((made.path / "config.toml").read_text())
    assert values["contrast"] == {"contrasts": 3}
    assert values["method"] == made.method
    assert values["sources"] == {"method": read_part(METHOD, made.method).digest}
    report = (made.path / "report.html").read_text()
    assert "contrast.contrasts" in report
    assert "Contrastive parameters of every trajectory" in report


def test_it_is_charged_what_it_says_and_obeys_its_budget(made):
    record = made.resumed.json()
    assert record["method"] == made.method
    assert (record["nle"], record["nle_stages"]) == (20 * STEP, {"policy-0-0": 20 * STEP})
    lines = [json.loads(line) for line in (made.path / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["stage"] == "policy-0-0"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 20
    loaded = sb.load(made.path, method=read_part(METHOD, made.method).value)
    assert loaded.config.trained_by.nle(job_for(loaded.config, loaded.task)) == record["nle"]


def test_a_budget_below_one_step_is_refused(made, tmp_path):
    train = ["train", "linear-gaussian", "--method", made.method, "--budget", STEP - 1]
    line = scorebed(*train, *options(*SIZES), "--out", tmp_path / "run").refusal()
    assert f"at least {STEP:,}" in line
    assert not (tmp_path / "run").exists()


def test_wrong_settings_of_it_are_refused(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ["train", "linear-gaussian", "--method", made.method]
    for setting, words in {
        "contrast.contrast=3": "did you mean 'contrast.contrasts'?",
        "contrast.contrasts=0": "contrast.contrasts, got 0, expected a whole number from 1",
        "pce.inner=3": "pce.inner, got a setting of pce",
        "score.steps=3": "score.steps, got a setting of",
    }.items():
        assert words in scorebed(*train, "--set", setting).refusal()
    assert "--score-kind, got" in scorebed(*train, "--score-kind", "particles").refusal()
    assert "--score, got" in scorebed(*train, "--score", made.path).refusal()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["resume", "evaluate", "diagnose", "report", "export", "live"])
def test_a_run_of_it_executes_no_file_by_itself(made, command):
    line = scorebed(command, made.path).refusal()
    assert f"a run with the method {made.method}, got no --method" in line
    assert f"add --method {made.method}" in line


def test_a_run_of_it_is_evaluated_by_a_bound_from_a_file(made, tmp_path):
    bound = write(tmp_path, "bound")
    found = scorebed(
        "evaluate", made.path, "--method", made.method, "--bound", bound, "--json"
    ).json()
    assert (found["bound"], found["outer"], found["inner"]) == ("few-draws", 16, 32)
    assert found["lower"] <= found["upper"] + 1e-6
    assert scorebed("report", made.path, "--method", made.method).code == 0


def test_it_is_compared_with_the_built_in_one_of_the_same_name(made, tmp_path):
    """Both cost the same a step, and each has a folder of its own."""
    file = made.method.rpartition(":")[0]
    sizes = [f"policy_training.{key}" for key in ("steps=3", "batch=4", "monitor_every=3")]
    sizes += ["policy_training.monitor_inner=8", *BOUNDS[:3]]
    terms = ["--methods", f"pce,{file}:PCE", "--budget", 3 * 4 * (7 + 1) * T, *options(*sizes)]
    command = ["bench", "compare", "--task", "linear-gaussian", *terms, "--out", tmp_path / "out"]
    found = scorebed(*command, "--json").json()["methods"]
    assert {name: each["nle"] for name, each in found.items()} == dict.fromkeys(
        ("pce", f"{file}:PCE"), 3 * 4 * (7 + 1) * T
    )
    folders = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert folders == {"pce", "my-method-pce"}
    again = scorebed(*command, "--json").json()["methods"]
    assert again[f"{file}:PCE"]["lower"] == found[f"{file}:PCE"]["lower"]


BAD = {
    "no such file": ("nothing.py:Mine", "the file nothing.py, got no such file"),
    "no name": ("my_method.py", "unknown method, got 'my_method.py'"),
    "another suffix": ("my_method.txt:Mine", "expected FILE.py:NAME"),
    "a wrong name": ("FILE:Contrst", "did you mean 'Contrast'?"),
    "no method": ("FILE:Helper", "got a class that is not a method"),
    "a module": ("FILE:sb", "got a module, expected a scorebed method"),
    "an abstract one": ("FILE:Base", "got no estimate, policy_training, trajectory_nle"),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_is_no_method_is_refused(tmp_path, monkeypatch, fault):
    monkeypatch.chdir(tmp_path)
    (name, words), file = BAD[fault], write(tmp_path, "method").rpartition(":")[0]
    line = scorebed("train", "linear-gaussian", "--method", name.replace("FILE", file)).refusal()
    assert words in line
    assert not (tmp_path / "runs").exists()


# ---- everything else

KINDS = {"policy": POLICY, "score-kind": SCORE_KIND, "sampler": SAMPLER}
SMALL = ["score.steps=20", "score.batch=8", "score.spread=0.5", "score.clip=10"]


class Whole(NamedTuple):
    """A run of which all parts but the method are the user's."""

    path: Path
    parts: dict[str, str]
    record: dict

    def options(self, *, but: str = "") -> list[str]:
        """The parts as options, all but one."""
        return [x for kind, name in self.parts.items() if kind != but for x in (f"--{kind}", name)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    parts = {kind: write(folder, kind) for kind in FILES if kind not in ("method", "bound")}
    task = parts["task"]
    others = [x for kind in KINDS for x in (f"--{kind}", parts[kind])]
    sizes = options(*SMALL, "policy_training.steps=10", *POLICIES, *BOUNDS)
    found = scorebed("train", task, *others, *sizes, "--out", folder / "run", "--json")
    return Whole(folder / "run", parts, found.json())


def test_all_parts_of_a_run_may_be_the_users(whole):
    values = tomllib.loads((whole.path / "config.toml").read_text())
    named = {name: values[name] for name in ("task", "policy", "sampler")}
    named["score-kind"] = values["score"]["kind"]
    assert named == whole.parts
    assert values["score"]["spread"] == 0.5
    assert set(values["sources"]) == {"task", "policy", "score_kind", "sampler"}
    # The score costs T likelihood evaluations beside those of its target.
    assert whole.record["nle_stages"] == {
        "score-0": 20 * 8 * 2 * T + 1024 * T,
        "policy-0-0": 10 * BATCH * 2 * T,
    }
    report = (whole.path / "report.html").read_text()
    assert "Where that parameter starts" in report
    assert "The policy cannot be shown" not in report


@pytest.mark.parametrize("kind", ["task", *KINDS])
def test_each_part_has_to_be_named_again(whole, kind):
    for command in ("resume", "evaluate"):
        line = scorebed(command, whole.path, *whole.options(but=kind)).refusal()
        assert f"add --{kind} {whole.parts[kind]}" in line


@pytest.mark.parametrize("kind", ["task", *KINDS])
def test_each_part_is_compared_with_what_it_was(whole, tmp_path, kind):
    changed = [*whole.options(but=kind), f"--{kind}", write(tmp_path, kind, more="\n# changed\n")]
    line = scorebed("resume", whole.path, *changed).refusal()
    assert "a file that has changed since the run began" in line
    found = scorebed("evaluate", whole.path, *changed, "--outer", 4, "--inner", 8)
    assert found.code == 0
    assert "has changed since the run was made" in found.err


def test_a_run_of_ones_own_parts_is_read_with_them(whole):
    again = scorebed("resume", whole.path, *whole.options(), "--json").json()
    assert again["lower"] == whole.record["lower"]
    parts = {
        kind.replace("-", "_"): read_part(KINDS[kind], name).value
        for kind, name in whole.parts.items()
        if kind in KINDS
    }
    loaded = sb.load(whole.path, task=read_task(whole.parts["task"]).task, **parts)
    names = [type(each).__name__ for each in (loaded.task, loaded.policy, loaded.score)]
    assert names == ["Line", "Feedback", "PointScore"]
    assert loaded.sampler.scale == 0.2
    found = scorebed("diagnose", whole.path, *whole.options(), "--outer", 16, "--inner", 32)
    assert found.code == 0, found.err


def test_its_score_trains_another_policy(whole, tmp_path):
    """Neither the policy nor the sampler of the run that has it is needed for that."""
    parts = {kind: whole.parts[kind] for kind in ("task", "score-kind")}
    sizes = options("policy_training.steps=4", *POLICIES, *BOUNDS)
    found = scorebed(
        *("train", parts["task"], "--score-kind", parts["score-kind"], "--policy", "static"),
        *("--score", whole.path, *sizes, "--out", tmp_path / "run", "--json"),
    ).json()
    assert found["nle_stages"] == {"policy-0-0": 4 * BATCH * 2 * T}


@pytest.mark.parametrize("kind", ["method", *KINDS])
def test_a_run_with_a_built_in_part_takes_none_from_a_file(whole, made, tmp_path, kind):
    part = ["--method", made.method] if kind != "method" else []
    other = write(tmp_path, kind)
    run_of = (made.path, part) if kind != "method" else (whole.path, whole.options())
    line = scorebed("resume", run_of[0], *run_of[1], f"--{kind}", other).refusal()
    assert f"got --{kind}, one of your own, expected none" in line
