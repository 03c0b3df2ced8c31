"""The script for a SLURM array: its first job leads, the others work for it; nobody else can."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scorebed.cluster.slurm import write_array_script

RUN = Path(__file__).parents[1] / "fixtures" / "runs-v1" / "score"


def test_a_script_is_for_any_shell_and_quotes_what_it_names(tmp_path):
    folder = tmp_path / "a run; of mine"
    folder.mkdir()
    command = ["resume", str(folder), "--task", "my file.py:Task"]
    path = write_array_script(folder / "array.sh", command, 3, name="scorebed-resume")
    text = path.read_text()
    assert os.access(path, os.X_OK)
    assert "#SBATCH --array=0-3\n" in text
    assert f"scorebed resume '{folder}' --task 'my file.py:Task' \\\n" in text
    assert '--dask-tls-key "$meeting/key.pem"' in text
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0


@pytest.mark.slow
def test_jobs_of_an_array_find_each_other_and_do_the_work(tmp_path):
    """Two jobs as SLURM would start them: bounds by a worker, over an encrypted connection."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    start = [sys.executable, "-c", "from scorebed.cli import main; main()"]
    asked = ["evaluate", str(run), "--outer", "32", "--inner", "64"]
    alone = subprocess.run([*start, *asked, "--json"], capture_output=True, check=True)
    subprocess.run([*start, *asked, "--slurm", "--workers", "1"], check=True, cwd=tmp_path)
    binaries = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "SLURM_ARRAY_JOB_ID": "7",
    }
    jobs = [
        subprocess.Popen(
            ["sh", str(run / "evaluate.sh")],
            env=environment | {"SLURM_ARRAY_TASK_ID": str(number)},
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for number in (1, 0)
    ]
    try:
        _, said = jobs[1].communicate(timeout=300)
        assert jobs[1].returncode == 0, said
        jobs[0].communicate(timeout=120)
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    shared, expected = json.loads((run / "evaluate.json").read_text()), json.loads(alone.stdout)
    for values in (shared, expected):
        values.pop("seconds")
    assert shared == expected
    assert not list(run.glob(".evaluate*")), "keys are not left behind"
