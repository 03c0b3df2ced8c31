"""`scorebed serve`: where it listens, how it goes by name, the file of its token, and its refusals
in one line.
"""

import os
import socket

import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")
pytest.importorskip("uvicorn", reason="the web page needs uvicorn: pip install 'scorebed[web]'")

from scorebed.cli._app import run as command
from scorebed.errors import RunFolderError
from scorebed.web.server import is_loopback, listen, make_door, read_token, shown


def test_the_token_is_made_once_and_readable_by_its_owner_alone(tmp_path):
    path = tmp_path / "live.token"
    token = read_token(path)
    assert len(token) == 43
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert read_token(path) == token
    assert read_token(tmp_path / "other.token") != token
    path.chmod(0o644)
    with pytest.raises(RunFolderError, match="others can read"):
        read_token(path)
    path.chmod(0o600)
    path.write_text("")
    with pytest.raises(RunFolderError, match="delete it"):
        read_token(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["live.token", "other.token"]
    with pytest.raises(RunFolderError, match="No such file"):
        read_token(tmp_path / "nowhere" / "live.token")


def test_loopback_is_the_default_and_only_an_open_server_answers_to_addresses():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("192.168.1.5")
    closed, wide = make_door("127.0.0.1", 8321, "t"), make_door("0.0.0.0", 8321, "t")
    assert not closed.knows("192.168.1.5:8321")
    assert wide.knows("192.168.1.5:8321")
    assert wide.knows("[fe80::1]:8321")
    assert wide.knows(f"{socket.gethostname()}:8321")
    assert not wide.knows("rebound.example:8321")
    assert not wide.knows("192.168.1.5:80")
    assert make_door("bench.local", 8321, "t").knows("bench.local:8321")
    assert shown("0.0.0.0") == "127.0.0.1"
    assert shown("::1") == "[::1]"
    assert make_door("127.0.0.1", 80, "t").knows("127.0.0.1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "70000"], "0 to 65535"),
        (["--port", "x"], "whole number"),
        (["--port", "-1"], "whole number"),
        (["--host", "::zz"], "where to listen"),
        (["--host", "203.0.113.7"], "where to listen"),
        (["--db", "/nowhere/at/all.sqlite"], "the file of experiments"),
    ],
)
def test_bad_options_are_refused_in_one_line(folder, capsys, options, words):
    assert (
        command(
            ["serve", str(folder), "--port", "0", *options]
            if "--port" not in options
            else ["serve", str(folder), *options]
        )
        == 2
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_port_that_is_taken_is_named(folder, capsys):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert command(["serve", str(folder), "--port", str(port)]) == 2
    err = capsys.readouterr().err
    assert f"port {port}" in err
    assert "--port 0" in err


def test_the_second_piece_of_an_answer_does_not_wait_for_the_first():
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        there, _ = listening.accept()
        with there:
            assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert client


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert command(["serve", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
