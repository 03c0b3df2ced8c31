"""The end of a process at a write of its experiment, as far as one process can have it."""

import contextlib

from scorebed.session.store import Store


class Crash(BaseException):
    """Nobody catches it, as nobody survives a power failure."""


def crash_at(monkeypatch, where: str, number: int = 1) -> None:
    """The n-th event from now crashes `before` it is written, `inside` (before its commit) or
    `after` (before anybody knows).
    """
    append, writing, count = Store.append, Store.writing, 0

    def crashing(self, *arguments, **options):
        nonlocal count
        count += 1
        if (where, count) == ("before", number):
            raise Crash
        event = append(self, *arguments, **options)
        if (where, count) == ("inside", number):
            raise Crash
        return event

    @contextlib.contextmanager
    def crashing_after(self):
        begun = count
        with writing(self):
            yield
        if where == "after" and begun < number <= count:
            raise Crash

    monkeypatch.setattr(Store, "append", crashing)
    monkeypatch.setattr(Store, "writing", crashing_after)
