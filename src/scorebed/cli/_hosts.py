"""Options of commands whose training may run on several hosts, and how such a command ends."""

import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from scorebed.cli._errors import complain
from scorebed.cli._interrupt import INTERRUPTED
from scorebed.cli._numbers import Count, FromZero
from scorebed.errors import ScorebedError, require

if TYPE_CHECKING:
    from scorebed.runs.host_team import Team
    from scorebed.runs.user_parts import UserParts


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class HostOptions:
    """Which host of how many this is."""

    hosts: Annotated[
        Count,
        Parameter(
            name="--hosts",
            help="Number of hosts that train the score together; each runs this command.",
        ),
    ] = 1
    rank: Annotated[
        FromZero | None,
        Parameter(
            name="--rank",
            help="With --hosts: the number of this host, from 0. Host 0 has the run's folder. "
            "SLURM or MPI tell it if left out.",
        ),
    ] = None
    coordinator: Annotated[
        str | None,
        Parameter(
            name="--coordinator",
            help="With --hosts: HOST:PORT, an address of host 0 at which all meet. SLURM or MPI "
            "tell it if left out.",
        ),
    ] = None

    def join(self, devices: int, parts: "Callable[[], UserParts]") -> "Team | None":
        """The other hosts, for host 0; None for one host alone. Any other host does what host 0
        says, with its own `parts`, and the process ends with that.
        """
        if self.hosts == 1:
            require(
                self.rank is None and self.coordinator is None,
                "--rank and --coordinator",
                got="one host",
                expected="--hosts as well",
                fix="give the number of hosts by --hosts.",
            )
            return None
        from scorebed.runs.host_team import Hosts, join, quiet_stdout

        with quiet_stdout():
            team = join(Hosts(self.hosts, self.rank, self.coordinator), devices, on_lost=_end)
            if team.leads:
                return team
            with leading(team):
                from scorebed.runs.hosts import assist  # computes: not before JAX knows the hosts

                assist(team, parts())
        sys.exit(0)


@contextlib.contextmanager
def leading(team: "Team | None") -> Iterator[None]:
    """While other hosts take part, an error ends this one at once: JAX would wait for them."""
    try:
        yield
    except BaseException as error:
        if team is None or not team.together:
            raise
        team.dismiss()
        _end(error)


def _end(error: BaseException) -> None:
    """End the process, whatever its other threads wait for: with one line if it is our error."""
    if isinstance(error, ScorebedError):
        code = complain(error)
    elif isinstance(error, KeyboardInterrupt):
        code = INTERRUPTED
    else:
        code = 1
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
