"""A study from the score to the winner, by the library and by its commands."""

import json
import re
import stat

import pytest

from scorebed.cli._app import run as main
from scorebed.errors import InvalidValueError, RunFolderError
from scorebed.runs.load import load
from scorebed.sweeps.creation import TrialPlanner, create_study
from scorebed.sweeps.study import RESULT, open_study
from scorebed.sweeps.winner import judge_winner


def test_a_trial_is_an_ordinary_run_of_its_settings_and_seed(finished):
    planner = TrialPlanner(open_study(finished.folder))
    for trial in finished.load().trials:
        found = trial.user_attrs[RESULT]
        run = load(finished.trials_folder / found["run"])
        assert run.record.bounds.lower == found["lower"] == trial.value
        assert run.config.seed == planner.seed(trial.number)
        assert run.config == planner.plan(found["settings"], trial.number).config


def test_the_score_is_an_immutable_file_known_by_its_hash(finished, score_run, make):
    path = finished.upfront_folder / "score-0.safetensors"
    assert path.read_bytes() == (score_run / "score-0.safetensors").read_bytes()
    assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    study = make()
    other = study.upfront_folder / "score-0.safetensors"
    other.chmod(0o644)
    other.write_bytes(b"another score")
    with pytest.raises(InvalidValueError, match="sha256"):
        study.check_files()


def test_nothing_is_written_on_bad_input(score_run, tmp_path, finished):
    folder = tmp_path / "new"
    with pytest.raises(InvalidValueError, match="points of the grid"):
        create_study(
            folder,
            score_run,
            space={"policy_training": {"batch": [2, 4]}},
            sampler="grid",
            trials=3,
        )
    assert not folder.exists()
    with pytest.raises(RunFolderError, match="never overwritten"):
        create_study(finished.folder, score_run)


def test_the_winner_is_judged_on_draws_that_chose_nothing(finished):
    winner = judge_winner(finished)
    best = finished.load().best_trial
    assert (winner.trial, winner.selection) == (best.number, best.value)
    assert winner.independent != winner.selection
    # Two estimates of one bound; beyond 6 errors once in a billion.
    assert abs(winner.luck) < 6 * winner.luck_se
    assert judge_winner(finished) == winner


def test_the_commands_answer_in_json_and_on_a_page(finished, capsys):
    name = str(finished.folder)
    assert main(["sweep", "status", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["finished"], found["running"], found["seconds_left"]) == (2, [], 0.0)
    assert main(["sweep", "status", name]) == 0
    assert "2 of 2 trials finished" in capsys.readouterr().out
    assert main(["sweep", "best", name, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert best["luck"] == pytest.approx(best["selection"] - best["independent"])
    assert main(["sweep", "report", name, "--json"]) == 0
    page = (finished.folder / "report.html").read_text()
    assert page.count("<svg") >= 3
    assert f"Trial {best['trial']} was chosen among 2" in page
    assert not re.search(r"<script|src=\"http", page)


def test_a_study_is_created_by_the_command_line(score_run, tmp_path, capsys):
    space = tmp_path / "space.toml"
    space.write_text("[policy_training]\nlearning_rat = [1e-3, 1e-2]\n")
    command = ["sweep", "create", str(tmp_path / "s"), "--score", str(score_run)]
    assert main([*command, "--space", str(space)]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'policy_training.learning_rate'?" in error
    assert not (tmp_path / "s").exists()
    assert main([*command, "--trials", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 4
    assert main(["sweep", "status", str(tmp_path / "nothing")]) == 2
    assert "scorebed sweep create" in capsys.readouterr().err
    assert main(["sweep", "best", str(tmp_path / "s")]) == 2
    assert "no finished trial" in capsys.readouterr().err
