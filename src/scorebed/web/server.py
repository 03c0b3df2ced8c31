"""Listening: the port, the token, and the first link.

The token is kept next to the file of experiments, readable by its owner alone, so that pages and
instruments go on after a restart. To lock everybody out, delete that file and start again."""

import contextlib
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from scorebed._platform import others_may_read
from scorebed.errors import InvalidValueError, RunFolderError
from scorebed.runs.durable import explained
from scorebed.runs.load import Run
from scorebed.session.stopping import StoppingRule
from scorebed.web.app import make_app
from scorebed.web.guard import Door
from scorebed.web.hub import Hub

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_TOKEN = re.compile("[A-Za-z0-9_-]{43}")


def serve(
    run: Run,
    *,
    host: str,
    port: int,
    db: Path | None,
    at_once: int = 1,
    rule: StoppingRule | None = None,
    on_compiling: Callable[[], None] = lambda: None,
    on_ready: Callable[[str, str], None],
) -> None:
    """Listen until interrupted. `on_ready(link, token)` is called once connections are taken, after
    `on_compiling`, when what designs need is compiled; the rest is compiled in the background.
    """
    listening = listen(host, port)
    with listening:
        taken = listening.getsockname()[1]
        hub = Hub(run, db=db, at_once=at_once, rule=rule)
        try:
            door = make_door(host, taken, read_token(hub.store.path.with_suffix(".token")))
            on_compiling()
            hub.warm_policy()
            hub.warm()
            # Without a log of accesses, which would have the token of the first link in it.
            settings = uvicorn.Config(
                make_app(hub, door),
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=3,
            )
            on_ready(f"http://{shown(host)}:{taken}/?token={door.token}", door.token)
            uvicorn.Server(settings).run(sockets=[listening])
        finally:
            hub.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0 is any that is free."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidValueError(
            "where to listen",
            got=f"{host} port {port}: {reason}",
            expected="an address of this machine and a port that is free",
            fix="--port 0 takes any free port.",
        ) from None
    # Inherited by every connection: an answer is written in two pieces, and the second would wait
    # 40 ms for the first to be acknowledged. The event loop sets this only on sockets it makes.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_door(host: str, port: int, token: str) -> Door:
    """The names of this server: those of loopback, the given one, and the machine's if it listens
    everywhere.
    """
    names = {*LOOPBACK, shown(host).lower()}
    everywhere = host in ("0.0.0.0", "::", "")
    if everywhere:
        names.add(socket.gethostname().lower())
    return Door(token, port, frozenset(names), everywhere)


def shown(host: str) -> str:
    """The host of the link: one that a browser on this machine can open."""
    if host in ("0.0.0.0", "::", ""):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """The token of a file, made if it is not there. One that others can read is refused."""
    if not path.exists():
        _make_token(path)
    with explained("reading", path):
        token, mode = path.read_text(errors="replace").strip(), path.stat().st_mode
    if not _TOKEN.fullmatch(token) or others_may_read(mode):
        raise RunFolderError(
            f"the token file {path}",
            got="one that others can read" if others_may_read(mode) else "something else",
            expected="a token that its owner alone can read",
            fix="delete it: a new one is made.",
        )
    return token


def _make_token(path: Path) -> None:
    """Put a new token in place at once, unless another process has just done so."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with explained("making", path):
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(32))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
