"""A bench goes on with a run in its folder only if that is the run that was asked for."""

import jax.numpy as jnp
import pytest

from scorebed.bench import compare, laptop
from scorebed.bench.reuse import timed_settings
from scorebed.cli._app import run as main
from scorebed.runs.artifacts import save
from scorebed.runs.begin import Request, plan
from scorebed.runs.config import read_toml, to_toml
from scorebed.runs.durable import replace_file
from scorebed.runs.execution import Execution
from scorebed.tasks import make_task

COMPARE = ["bench", "compare", "--task", "linear-gaussian", "--methods", "pce"]
LAPTOP = ["bench", "laptop", "--task", "linear-gaussian", "--methods", "score"]


class Carried(BaseException):
    """A run that would have been carried out."""


@pytest.fixture
def nothing_runs(monkeypatch):
    """Runs are planned and begun, and stopped before they train."""

    def stopped(self):
        del self
        raise Carried

    monkeypatch.setattr(Execution, "run", stopped)


def begin(words: list[str]) -> None:
    with pytest.raises(Carried):
        main(words)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("start", "first", "second", "key", "got", "expected"),
    [
        (COMPARE, ["--seed", "1"], ["--seed", "2"], "seed", "1", "2"),
        (COMPARE, [], ["--preset", "laptop"], "preset", "quick", "laptop"),
        (COMPARE, [], ["--set", "policy_training.batch=7"], "policy_training.batch", "256", "7"),
        (COMPARE, [], ["--budget", "60000000"], "budget", "50000000", "60000000"),
        (COMPARE, [], ["--set", "repeats=2"], "repeats", "1", "2"),
        (LAPTOP, [], ["--preset", "quick"], "preset", "laptop", "quick"),
        (LAPTOP, [], ["--set", "score.steps=9"], "score.steps", "4000", "9"),
        (LAPTOP, ["--set", "policies=2"], [], "policies", "2", "1"),
    ],
)
def test_other_settings_are_refused_by_the_first_key_that_differs(
    tmp_path, capsys, start, first, second, key, got, expected
):
    out = ["--out", str(tmp_path / "bench")]
    budget = ["--budget", "50000000"] if start is COMPARE and "--budget" not in second else []
    begin([*start, *out, *first, *(["--budget", "50000000"] if start is COMPARE else [])])
    capsys.readouterr()
    assert main([*start, *out, *budget, *second]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"got {key} = {got}, expected {key} = {expected}" in err
    begin([*start, *out, *first, *(["--budget", "50000000"] if start is COMPARE else [])])


@pytest.mark.usefixtures("nothing_runs")
def test_a_time_is_not_measured_again_but_another_one_is_refused(tmp_path, capsys):
    """The folder as `--minutes 4` leaves it, without the timing: steps that no other machine would
    have found.
    """
    task, out = make_task("linear-gaussian"), tmp_path / "bench"
    words = [*COMPARE, "--out", str(out)]
    begin([*words, "--budget", "50000000"])
    values = read_toml(out / "pce" / "config.toml")
    preset = plan(compare._request("linear-gaussian", task, "pce", "quick", ["seed=0"])).config
    assert timed_settings(preset, task) == {"policy_training.steps"}
    text = to_toml(preset).replace("minutes = 0.0", "minutes = 4.0")
    steps = f"steps = {values['policy_training']['steps']}"
    replace_file(out / "pce" / "config.toml", text.replace(steps, "steps = 12345").encode())
    assert read_toml(out / "pce" / "config.toml")["policy_training"]["steps"] == 12345
    begin([*words, "--minutes", "4"])
    for other, key in ((["--minutes", "5"], "minutes"), (["--budget", "50000000"], "budget")):
        capsys.readouterr()
        assert main([*words, *other]) == 2
        assert f"got {key} = " in capsys.readouterr().err


def test_steps_of_both_stages_are_what_a_time_decides():
    task = make_task("pendulum")
    request = Request(
        task_name="pendulum", task=task, preset="quick", method="score", policy="plan"
    )
    assert timed_settings(plan(request).config, task) == {"score.steps", "policy_training.steps"}
    still = Request(task_name="pendulum", task=task, preset="quick", method="random")
    assert timed_settings(plan(still).config, task) == set()


def test_a_joint_run_may_have_begun_before_there_was_a_score(tmp_path):
    """Its own score, or one taken over: either is what was asked for."""
    first, joint = (tmp_path / f"linear-gaussian-{method}-0" for method in ("score", "jointscore"))
    settings = ["seed=0", "evaluation.references=false"]
    words = ("linear-gaussian", "jointscore", joint, first, "quick", settings)
    with laptop._run(*words).folder:
        pass
    request = Request(
        task_name="linear-gaussian",
        task=make_task("linear-gaussian"),
        preset="quick",
        method="score",
        overrides=settings,
    )
    with plan(request).create(first):
        (first / "record.json").write_text("{}")
        save(first / "score-0.safetensors", {"weight": jnp.zeros(2)}, request.task)
    with laptop._run(*words).folder:
        pass
