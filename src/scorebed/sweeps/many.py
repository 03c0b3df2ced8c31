"""Several workers at once: processes of this machine, or an array of a SLURM cluster."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scorebed.errors import ScorebedError
from scorebed.runs.durable import replace_file
from scorebed.sweeps.study import SweepStudy

SCRIPT = "array.sh"
MAIN = "import sys; from scorebed.cli import main; main()"
# Workers share the cores by their number, not by threads that stand in each other's way.
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def run_workers(study: SweepStudy, count: int, options: Sequence[str]) -> None:
    """Start workers and wait for all of them. One that dies leaves its trial to the others; Ctrl-C
    stops all, and keeps what they have.
    """
    command = [sys.executable, "-c", MAIN, "sweep", "work", str(study.folder), *options, "--json"]
    flags = f"{ONE_THREAD} {os.environ.get('XLA_FLAGS', '')}"
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "XLA_FLAGS": flags})
        for _ in range(count)
    ]
    try:
        codes = [process.wait() for process in processes]
    except BaseException:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        raise
    if all(codes):
        raise ScorebedError(
            f"the workers of {study.folder}, got exit codes {codes}, expected one that ends well. "
            f"Fix: their errors stand above; go on with: scorebed sweep work {study.folder}"
        )


def write_array_script(study: SweepStudy, count: int, options: Sequence[str]) -> Path:
    """A script for `sbatch`: an array whose jobs are workers. A job that the scheduler ends gives
    its trial back, and one that is queued again takes up what is left.
    """
    folder = study.folder.resolve()
    work = shlex.join(["scorebed", "sweep", "work", str(folder), *options])
    name = shlex.quote(f"sweep-{study.name}")
    text = f"""#!/bin/sh
#SBATCH --job-name={name}
#SBATCH --array=1-{count}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
exec srun {work}
"""
    path = study.folder / SCRIPT
    replace_file(path, text.encode())
    path.chmod(0o755)
    return path
