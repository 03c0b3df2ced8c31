"""A script for `sbatch`: an array whose first job leads and whose others are its workers.

The first job starts a Dask scheduler and runs the command on it; the others are Dask workers, which
come and go as SLURM lets them. They find the scheduler by a file in the shared folder, and trust
each other by a certificate that the first job makes there for this array alone: nobody else on the
network can join, or give them work.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

TLS_OPTIONS = ("--dask-tls-ca-file", "--dask-tls-cert", "--dask-tls-key")


def write_array_script(
    path: Path, command: Sequence[str], workers: int, *, name: str, out: Path | None = None
) -> Path:
    """Write the script for `scorebed COMMAND` on so many workers. The command must be one that can
    be started again: a job that SLURM has queued anew goes on. Its answer goes to `out`, if given.
    """
    folder = path.resolve().parent
    meeting = folder / f".{path.stem}"
    answer = f" > {shlex.quote(str(out.resolve()))}" if out is not None else ""
    tls = " ".join(
        f'{option} "$meeting/{file}"'
        for option, file in zip(TLS_OPTIONS, ("cert.pem", "cert.pem", "key.pem"), strict=True)
    )
    text = f"""#!/bin/sh
#SBATCH --job-name={shlex.quote(name)}
#SBATCH --array=0-{workers}
#SBATCH --chdir={shlex.quote(str(Path.cwd()))}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=08:00:00
#SBATCH --requeue
umask 077
meeting={shlex.quote(str(meeting))}-$SLURM_ARRAY_JOB_ID
set -- --protocol tls --no-dashboard --tls-ca-file "$meeting/cert.pem" \\
  --tls-cert "$meeting/cert.pem" --tls-key "$meeting/key.pem"
if [ "$SLURM_ARRAY_TASK_ID" != 0 ]; then
  while [ ! -s "$meeting/scheduler.json" ]; do sleep 2; done
  exec dask worker --scheduler-file "$meeting/scheduler.json" --nthreads 1 "$@"
fi
rm -rf "$meeting" && mkdir -p "$meeting" || exit 1
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=scorebed \\
  -keyout "$meeting/key.pem" -out "$meeting/cert.pem" 2> "$meeting/openssl.log" || exit 1
dask scheduler --scheduler-file "$meeting/scheduler.json" --port 0 "$@" &
scheduler=$!
trap 'kill $scheduler; rm -rf "$meeting"' EXIT
while [ ! -s "$meeting/scheduler.json" ]; do kill -0 $scheduler || exit 1; sleep 1; done
scorebed {shlex.join(command)} \\
  --dask "$meeting/scheduler.json" {tls}{answer}
"""
    path.write_text(text)
    path.chmod(0o755)
    return path
