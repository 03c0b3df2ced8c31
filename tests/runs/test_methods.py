"""Every method through the same door: run folder, ledger, bounds, record, and one artifact shared
among policies.
"""

import json

import pytest
from tiny_runs import settings_of, train

from scorebed.cli._app import run as main
from scorebed.runs.load import load

T, STEPS, BATCH = 3, 40, 16


def trained(tmp_path, capsys, method, *arguments, name="run"):
    """The record of a tiny run on the linear-Gaussian task, and its folder."""
    path, alone = tmp_path / name, ["--set", "evaluation.references=false"]
    code = main(train(*alone, *arguments, "--out", path, "--json", method=method))
    out = capsys.readouterr()
    assert code == 0, out.err
    return json.loads(out.out), path


@pytest.mark.slow
@pytest.mark.parametrize("method", ["varmarg", "varpost"])
def test_a_density_is_learned_once_and_shared_among_policies(tmp_path, capsys, method):
    stem = {"varmarg": "marginal-0", "varpost": "posterior-0"}[method]
    record, path = trained(tmp_path, capsys, method)
    assert record["nle_stages"] == {stem: 30 * BATCH * T, "policy-0-0": STEPS * BATCH * T}
    second, other = trained(
        tmp_path, capsys, method, "--score", str(path), "--policy", "static", name="second"
    )
    assert second["nle_stages"] == {"policy-0-0": STEPS * BATCH * T}
    assert (other / f"{stem}.safetensors").read_bytes() == (
        path / f"{stem}.safetensors"
    ).read_bytes()
    assert load(path).score is None


@pytest.mark.slow
def test_a_posterior_that_learns_beside_its_policy_is_kept_with_it(tmp_path, capsys):
    record, path = trained(tmp_path, capsys, "jointvarpost", "--policies", "2")
    assert record["nle"] == 2 * STEPS * BATCH * T
    assert (path / "joint-posterior-0.safetensors").exists()


@pytest.mark.slow
def test_mlmc_records_what_it_spent_and_what_it_would_on_average_or_padded(tmp_path, capsys):
    record, _ = trained(tmp_path, capsys, "mlmc", "--budget", "100000")
    assert record["nle"] <= 100_000 < record["nle_padded"]
    # θ_0 is counted at level 0 by the ledger and not by the paper's figure.
    assert 0.8 < record["nle_expected"] / record["nle"] < 1.1


@pytest.mark.slow
def test_floors_need_no_training(tmp_path, capsys):
    record, path = trained(tmp_path, capsys, "random")
    assert record["nle"] == 0
    assert load(path).policy is not None
    assert main(["diagnose", str(path)]) == 2
    assert "without a score" in capsys.readouterr().err
    static, _ = trained(tmp_path, capsys, "static", name="static")
    assert static["policy"] == "static"
    assert static["lower"] > record["lower"]


@pytest.mark.slow
def test_iosmc_counts_what_it_spends_and_stops_within_its_budget(tmp_path, capsys):
    sizes = settings_of(["policy_training.batch=8", "policy_training.monitor_every=2"])
    few = ["--policy", "gru", "--policies", "2", "--budget", "10000"]
    record, path = trained(tmp_path, capsys, "iosmc", *few, *sizes)
    assert 0 < record["nle"] <= 10_000
    each = [json.loads((path / f"policy-0-{i}.json").read_text())["nle"] for i in range(2)]
    assert record["nle"] == sum(each)
    assert max(each) <= 5000
    assert main(train("--policy", "dad", "--out", tmp_path / "dad", method="iosmc")) == 2
    assert "the policy of iosmc, got DAD" in capsys.readouterr().err


@pytest.mark.slow
def test_training_ends_when_the_bound_no_longer_rises_and_the_ledger_says_so(tmp_path, capsys):
    """With a vanishing learning rate nothing improves after the first estimate."""
    frozen = [
        "policy_training.learning_rate=1e-12",
        "policy_training.patience=5",
        "policy_training.monitor_every=5",
    ]
    record, path = trained(tmp_path, capsys, "pce", *settings_of(frozen))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines if line["stage"] == "policy-0-0") == 10
    assert record["nle"] == 10 * BATCH * 4 * T
