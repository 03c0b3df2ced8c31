"""Storages and disks that are away for a while: what they are asked is asked again."""

import errno
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

LONGEST_PAUSE = 60.0  # seconds between two tries to reach a storage
# Of a disk that is not there, or whose server gives no answer. A full one is none of these.
AWAY = {
    errno.ENOENT,
    errno.EIO,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
}
UNREACHABLE = {"OperationalError", "InterfaceError", "DisconnectionError"}  # of SQLAlchemy

Answer = TypeVar("Answer")


def patiently(call: Callable[[], Answer], say: Callable[[str], None] = lambda _: None) -> Answer:
    """What a storage answers. One that is away is asked again, after pauses that grow, for as long
    as it takes; `say` is told why, once.
    """
    pause = 1.0
    while True:
        try:
            return call()
        except Exception as error:
            if not is_away(error):
                raise
            if pause == 1.0:
                say(str(error))
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def is_away(error: BaseException) -> bool:
    """Whether an error says that a storage cannot be reached, not that a question was wrong."""
    return is_database_away(error) or any(
        isinstance(cause, OSError) and cause.errno in AWAY for cause in _causes(error)
    )


def is_database_away(error: BaseException) -> bool:
    """Whether an error says that a database cannot be reached."""
    kinds = [type(cause) for cause in _causes(error)]
    return any(
        kind.__module__.startswith("sqlalchemy") and kind.__name__ in UNREACHABLE for kind in kinds
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
