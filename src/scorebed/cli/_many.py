"""Options of commands whose work may be shared among many workers."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from scorebed.cli._numbers import Count
from scorebed.cli._output import print_json, print_text
from scorebed.errors import require

if TYPE_CHECKING:
    from scorebed.cluster.pool import Pool


WORKER = 256 * 2**20  # bytes of a process that has imported JAX, at the least


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class ManyOptions:
    """Who does the work."""

    workers: Annotated[
        Count,
        Parameter(
            name="--workers",
            help="Number of worker processes on this machine; of a SLURM array with --slurm.",
        ),
    ] = 1
    dask: Annotated[
        str | None,
        Parameter(
            name="--dask",
            help="Address of a Dask scheduler, or its scheduler file: its workers do the work. "
            "They need the same folders.",
        ),
    ] = None
    tls_ca_file: Annotated[
        Path | None,
        Parameter(
            name="--dask-tls-ca-file",
            help="Certificate that the cluster is trusted by; Dask's own configuration if left "
            "out, as of the next two.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, Parameter(name="--dask-tls-cert", help="Certificate of this client.")
    ] = None
    tls_key: Annotated[
        Path | None, Parameter(name="--dask-tls-key", help="Key of this client.")
    ] = None
    slurm: Annotated[
        bool,
        Parameter(
            name="--slurm",
            negative="",
            help="Run nothing: write a script for a SLURM array of so many workers.",
        ),
    ] = False

    def __post_init__(self) -> None:
        require(
            self.dask is None or (self.workers == 1 and not self.slurm),
            "--dask",
            got="--workers or --slurm as well",
            expected="a cluster that runs, or one to be started",
            fix="leave one of them out.",
        )
        if not self.slurm:
            require_room_for(self.workers)
        tls = (self.tls_ca_file, self.tls_cert, self.tls_key)
        require(
            self.dask is not None or tls == (None, None, None),
            "--dask-tls-ca-file, --dask-tls-cert and --dask-tls-key",
            got="one of them without --dask",
            expected="the address of a cluster that is reached by them",
            fix="add --dask ADDRESS, or leave them out.",
        )

    @property
    def one(self) -> bool:
        """Whether this process does the work itself."""
        return self.workers == 1 and self.dask is None

    def require_own_clock(self, minutes: float | None, *, hosts: int = 1) -> None:
        """Minutes are watched by the process that does the work: refuse others beside it."""
        require(
            not minutes or (self.one and not self.slurm and hosts == 1),
            "--minutes",
            got="--workers, --dask, --slurm or --hosts as well",
            expected="one process, which watches its time",
            fix="leave them out, or use --budget.",
        )

    @contextlib.contextmanager
    def pool(self) -> "Iterator[Pool | None]":
        """The workers; None if this process does the work itself."""
        if self.one:
            yield None
            return
        from scorebed.cluster.pool import TlsFiles, dask_pool, local_pool

        tls = TlsFiles(self.tls_ca_file, self.tls_cert, self.tls_key)
        found = local_pool(self.workers) if self.dask is None else dask_pool(self.dask, tls)
        with found as pool:
            yield pool

    def write_script(
        self, path: Path, command: Sequence[str], *, as_json: bool, out: Path | None = None
    ) -> None:
        """The script for SLURM, and what to do with it."""
        from scorebed.cluster.slurm import write_array_script

        write_array_script(path, command, self.workers, name=f"scorebed-{command[0]}", out=out)
        if as_json:
            print_json({"script": str(path)})
        else:
            print_text(f"{path}: look at its time and memory, then: sbatch {path}")


def require_room_for(workers: int) -> None:
    """Refuse more processes on this machine than its memory holds."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // WORKER
    require(
        workers <= max(1, room),
        "--workers",
        got=f"{workers:,} processes of about {WORKER / 2**20:.0f} MiB each",
        expected=f"at most {room:,} in the memory of this machine",
        fix="take as many as there are cores.",
    )


HERE = ManyOptions()  # this process does the work itself
