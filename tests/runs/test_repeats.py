"""Repeats: what they share, what they cost, what is said of each, and which score trained which
policy.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from records import some_record
from scorebed.cli._app import run as main
from scorebed.errors import BudgetExceededError, InvalidValueError
from scorebed.methods.base import Job
from scorebed.policies import make_policy
from scorebed.report import write_report
from scorebed.runs.artifacts import load_like, save
from scorebed.runs.begin import Request, plan
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.ledgers import RunLedgers
from scorebed.runs.load import load
from scorebed.runs.record import Record
from scorebed.runs.stage import Progress
from scorebed.runs.stage_files import PolicyChoice, StageFiles, write_choice
from scorebed.samplers import make_sampler
from scorebed.tasks import make_task

T, STAGE_1, POLICY = 3, 1024 * 3 + 4 * 8 * 3 * (1 + 4), 4 * 8 * 3 * (1 + 4)
SETTINGS = [
    *("score.steps=4", "score.batch=8", "score.width=4", "score.particles=2", "score.cloud=2"),
    *("score.seeds=2", "policy_training.steps=4", "policy_training.batch=8"),
    *("policy_training.monitor_every=2", "policy_training.monitor_inner=9"),
    *("evaluation.outer=8", "evaluation.inner=20", "evaluation.tight_outer=0"),
    *("evaluation.select_outer=8", "evaluation.select_inner=9"),
    *("policies=3", "repeats=2", "evaluation.references=false"),
]


def concluded(path: Path, *settings: str) -> Path:
    """A run whose stages are over, as far as its files can tell: scores and policies are untrained,
    so that nothing is compiled but bounds. What is left is carried out.
    """
    task = make_task("linear-gaussian")
    request = Request(
        task_name="linear-gaussian",
        task=task,
        preset="quick",
        method="score",
        policy="static",
        overrides=[*SETTINGS, *settings],
    )
    new = plan(request)
    method, job = new.config.trained_by, job_for(new.config, task)
    like = method.upfront_like(job)
    with new.create(path) as folder:
        for index in range(job.upfronts(2)):
            score = jax.tree.map(lambda leaf, i=index: jnp.full(leaf.shape, i, leaf.dtype), like)
            save(path / f"score-{index}.safetensors", score, task)
        folder.write_json_atomic("coverage.json", {"outside_by_step": [0.0] * T})
        for repeat in range(2):
            for name, count in job.groups(2, repeat):
                values = {"steps": [4] * count, "survivors": list(range(count))}
                folder.write_json_atomic(f"{name}.json", values | {"nle": count * POLICY})
            best = PolicyChoice(2 - repeat, job.upfront_index(repeat, 1 - repeat, 2))
            write_choice(folder, repeat, [0.0, 0.5, 1.0], best, f"score-{best.upfront}")
            policy = job.make_policy(task, key=jax.random.key(repeat))
            save(path / f"policy-{repeat}.safetensors", policy, task, policy="static")
        assert StageFiles(folder).steps("policy-1-1", 1) == [4]
        Execution(folder, new.config, task, progress=Progress()).run()
    return path


@pytest.fixture(scope="module")
def shared_scores(tmp_path_factory) -> Path:
    """Two repeats of three policies, on the same two scores."""
    return concluded(tmp_path_factory.mktemp("repeats") / "shared")


@pytest.fixture(scope="module")
def fresh_scores(tmp_path_factory) -> Path:
    """The same with two scores for each repeat."""
    return concluded(tmp_path_factory.mktemp("repeats") / "fresh", "fresh_scores=true")


def record_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "record.json").read_text())
    return found


def scores_in(path: Path) -> list[str]:
    return sorted(file.stem for file in path.glob("score-*.safetensors"))


def test_repeats_share_what_is_learned_upfront_and_each_is_charged_for_all_of_it(shared_scores):
    record = record_of(shared_scores)
    assert scores_in(shared_scores) == ["score-0", "score-1"]
    assert record["nle"] == 2 * STAGE_1 + 2 * 3 * POLICY
    assert record["nle_per_repeat"] == 2 * STAGE_1 + 3 * POLICY
    assert [each["nle"] for each in record["repeats"]] == 2 * [record["nle_per_repeat"]]


def test_fresh_scores_are_paid_for_in_each_repeat(fresh_scores):
    record = record_of(fresh_scores)
    assert scores_in(fresh_scores) == ["score-0", "score-1", "score-2", "score-3"]
    assert record["nle"] == 2 * record["nle_per_repeat"] == 4 * STAGE_1 + 2 * 3 * POLICY
    trained = [(each["policy_number"], each["trained_with"]) for each in record["repeats"]]
    assert trained == [(2, "score-1"), (1, "score-2")]


def test_selection_is_counted_apart(shared_scores):
    record = record_of(shared_scores)
    watched, chosen = 2 * 3 * 2 * 128 * (9 + 1) * T, 2 * 3 * 8 * (9 + 1) * T
    assert record["nle_selection"] == watched + chosen
    assert record["nle_evaluation"] == 2 * 8 * (20 + 1) * T
    assert record["nle_references"] == 0


def test_errors_across_repeats_are_of_both_bounds_and_each_repeat_is_in_the_record(shared_scores):
    record = record_of(shared_scores)
    for side in ("lower", "upper"):
        each = [values[side] for values in record["repeats"]]
        assert record[side] == pytest.approx(sum(each) / 2)
        assert record[f"{side}_se_repeats"] == pytest.approx(abs(each[0] - each[1]) / 2)
    again = Record.read(record)
    assert json.loads(json.dumps(again.values())) == record
    assert again.repeats is not None
    assert again.repeats[1].bounds.upper == record["repeats"][1]["upper"]
    page = write_report(shared_scores).read_text()
    assert "of the upper bound" in page
    assert "Standard error across policies alone" in page
    assert f"{record['nle_selection']:,}" in page
    for values in record["repeats"]:
        assert f"trained with {values['trained_with']}" in page


@pytest.mark.parametrize("which", ["shared_scores", "fresh_scores"])
@pytest.mark.parametrize("repeat", [0, 1])
def test_a_run_has_the_score_that_trained_the_chosen_policy(request, tmp_path, which, repeat):
    """For every choice that could have been made, as a run of today and one of before writes it."""
    path = shutil.copytree(request.getfixturevalue(which), tmp_path / "run")
    file = path / f"choice-{repeat}.json"
    choice = json.loads(file.read_text())
    scores = {name: score_in(path, name) for name in scores_in(path)}
    for best, part in ((0, 0), (1, 0), (2, 1)):  # two policies on the first score, one on the other
        file.write_text(json.dumps({"lower": choice["lower"], "best": best}))
        expected = f"score-{part + (2 * repeat if which == 'fresh_scores' else 0)}"
        found = load(path, repeat=repeat).score
        assert [name for name, score in scores.items() if same_arrays(score, found)] == [expected]
        if best == choice["best"]:
            assert choice["upfront"] == expected


def score_in(path: Path, name: str) -> Any:
    run = load(path)
    like = run.config.trained_by.upfront_like(job_for(run.config, run.task))
    return load_like(path / f"{name}.safetensors", like, run.task)


def same_arrays(ours: Any, theirs: Any) -> bool:
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_fresh_scores_are_trained_and_a_run_of_them_goes_on_where_it_was(tmp_path):
    path = tmp_path / "run"
    sets = [part for value in (*SETTINGS, "score.seeds=1") for part in ("--set", value)]
    words = ["train", "linear-gaussian", "--policy", "static", "--out", str(path), *sets]
    assert main([*words, "--fresh-scores", "--json"]) == 0
    assert scores_in(path) == ["score-0", "score-1"]
    files = [path / f"{name}.safetensors" for name in ("score-0", "score-1", "policy-1")]
    assert files[0].read_bytes() != files[1].read_bytes()
    before, policy = record_of(path), files[2].read_bytes()
    for name in ("record.json", "bounds-1.json", "choice-1.json", "policy-1.safetensors"):
        (path / name).unlink()
    files[1].unlink()
    assert main(["resume", str(path)]) == 0
    assert record_of(path) | {"seconds": {}} == before | {"seconds": {}}
    assert files[2].read_bytes() == policy


def test_a_repeat_that_there_is_not_and_scores_both_fresh_and_taken_over_are_refused(
    shared_scores, tmp_path, capsys
):
    with pytest.raises(InvalidValueError, match="from 0 to 1"):
        load(shared_scores, repeat=2)
    words = ["train", "linear-gaussian", "--score", str(shared_scores), "--fresh-scores"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "--fresh-scores" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_static_designs_to_compare_with_have_a_ledger_of_their_own(shared_scores, tmp_path):
    """Training and watching each of the three starts, from what is written of their stage, and
    choosing among them.
    """
    path = shutil.copytree(shared_scores, tmp_path / "run")
    run = load(path)
    with RunFolder.open(path).acquire() as folder:
        work = Execution(folder, run.config, run.task, progress=Progress())
        reference = run.config.trained_by.static_reference()
        assert reference is not None
        static = make_policy("static", run.task, key=jax.random.key(0))
        save(path / "static.safetensors", static, run.task, policy="static")
        stage = {"steps": [8] * 3, "survivors": [0, 1, 2], "nle": 777}
        folder.write_json_atomic("static.json", stage)
        work._static(reference[0], None)
        assert work.ledgers.references.spent == 777 + 3 * (4 * 128 + 8) * (9 + 1) * T
        assert work.ledgers.training.spent == 0


def test_a_budget_is_that_of_a_repeat_and_what_is_shared_counts_in_each():
    ledgers = RunLedgers(100, 2)
    ledgers.train("score-0", 60)
    ledgers.train("policy-0-0", 40, [0])
    ledgers.train("policy-1-0", 40, [1])
    assert (ledgers.training.spent, ledgers.per_repeat) == (140, [100, 100])
    with pytest.raises(BudgetExceededError):
        ledgers.train("policy-1-1", 1, [1])
    ledgers.settle("policy-1-0", 30, 1)
    assert (ledgers.training.spent, ledgers.per_repeat) == (130, [100, 90])


def test_a_match_takes_the_budget_of_one_repeat():
    stages = {"score-0": 60, "policy-0-0": 30, "policy-0-1": 10, "policy-1-0": 40}
    old = some_record(nle=140, nle_stages=stages)
    assert old.budget_used == 100
    assert dataclasses.replace(old, nle_per_repeat=105).budget_used == 105


def test_policies_belong_to_the_part_that_trained_them():
    task = make_task("linear-gaussian")
    job = Job(
        task=task,
        sampler=make_sampler("paper", task),
        make_policy=lambda *_, **__: None,
        policies=8,
        repeats=3,
        key=jax.random.key(0),
    )
    fresh = dataclasses.replace(job, fresh_upfront=True)
    assert [job.part_of(number, 3) for number in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert dataclasses.replace(job, policies=1).part_of(0, 3) == 0
    assert (job.upfronts(3), fresh.upfronts(3)) == (3, 9)
    assert [job.upfront_index(repeat, 1, 3) for repeat in range(3)] == [1, 1, 1]
    assert [fresh.upfront_index(repeat, 1, 3) for repeat in range(3)] == [1, 4, 7]
