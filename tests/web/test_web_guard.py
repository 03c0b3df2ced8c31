"""Who may ask, and what: token, Host, Origin, content security policy, size, escaping, names of
files. One law each.
"""

import re

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")

from scorebed.session.what_if import Foresight
from scorebed.tasks.spaces import Quantity
from scorebed.web.pairs import draw_pairs
from scorebed.web.rendering import render

BASE, PORT = "http://127.0.0.1:8321", 8321
TOKEN = "".join(chr(ord("A") + i % 26) for i in range(43))  # as in conftest.py
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
PATHS = (
    "/",
    "/list",
    "/version",
    "/experiments/1",
    "/experiments/1/now",
    "/experiments/1/knowledge",
    "/experiments/1/experiment.csv",
    "/experiments/1/experiment.json",
    "/static/live.js",
    "/openapi.json",
    "/api/experiments",
    "/api/experiments/1",
    "/api/experiments/1/version",
    "/api/experiments/1/summary",
    "/api/experiments/1/observe",
    "/api/experiments/1/undo",
    "/experiments/1/outlook",
    "/static/changes.js",
    "/api/experiments/1/outlook",
    "/api/experiments/1/foresee",
    "/api/experiments/1/limit",
    "/api/experiments/1/plan",
    "/api/experiments/1/refine",
)
EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


@pytest.mark.usefixtures("begun")
def test_nothing_is_answered_without_the_token(client):
    stranger = client()
    for path in PATHS:
        for method in METHODS:
            answer = stranger.request(method, path)
            assert answer.status_code == 401, (method, path)
            assert "bench" not in answer.text
            assert TOKEN not in answer.text
    wrong = client(Authorization=f"Bearer {'x' * 43}")
    wrong.cookies.set(f"scorebed-{PORT}", "x" * 43)
    assert wrong.get("/api/experiments").status_code == 401
    assert stranger.get("/", headers={"Authorization": b"Bearer \xe9"}).status_code == 401
    assert client(Authorization="Bearer ").get("/").status_code == 401


@pytest.mark.parametrize(
    "token",
    [TOKEN[:-1], TOKEN[:1], TOKEN[1:], TOKEN + "A", TOKEN.lower(), TOKEN * 2],
    ids=["all but its end", "its first letter", "its end", "longer", "small letters", "twice"],
)
def test_a_token_that_is_almost_right_opens_nothing(client, token):
    wrong = client(Authorization=f"Bearer {token}", Accept="text/html")
    assert wrong.get("/api/experiments").status_code == 401
    assert wrong.get("/", params={"token": token}).status_code == 403
    cookie = client(Origin=BASE)
    cookie.cookies.set(f"scorebed-{PORT}", token)
    assert cookie.get("/api/experiments").status_code == 401


def test_the_first_link_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(client):
    visitor = client(Accept="text/html")
    answer = visitor.get("/", params={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert f"scorebed-{PORT}={TOKEN}" in cookie
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in answer.text
    assert 'url=/"' in answer.text  # and on, to an address without the token
    assert visitor.get("/").status_code == 200
    stranger = client(Accept="text/html")
    refused = stranger.get("/", params={"token": "wrong"})
    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers
    assert stranger.get("/").status_code == 401


FOREIGN = (
    "evil.example",
    f"evil.example:{PORT}",
    "127.0.0.1",
    "127.0.0.1:80",
    f"127.0.0.1.evil.example:{PORT}",
    "",
    f"10.0.0.1:{PORT}",
)


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused_by_every_method(client, host):
    right = client(Authorization=f"Bearer {TOKEN}", Host=host)
    for method in METHODS:
        assert right.request(method, "/api/experiments").status_code == 421
    assert right.get("/", params={"token": TOKEN}).status_code == 421


@pytest.mark.parametrize(
    "host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"]
)
def test_our_own_names_are_known(client, host):
    assert (
        client(Authorization=f"Bearer {TOKEN}", Host=host).get("/api/experiments").status_code
        == 200
    )


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8321", ""]
)
def test_a_foreign_origin_is_refused_by_every_method(client, begun, origin):
    cross = client(Authorization=f"Bearer {TOKEN}", Origin=origin)
    for method in METHODS:
        assert cross.request(method, f"{begun}/version").status_code == 403
    assert cross.post(f"{begun}/observe", json={"y": 1.0}).status_code == 403


def test_a_cookie_changes_things_only_with_our_origin(client, page, begun):
    silent = client()
    silent.cookies.set(f"scorebed-{PORT}", TOKEN)
    assert silent.get(begun).status_code == 200
    assert silent.post(f"{begun}/observe", json={"y": 1.0}).status_code == 403
    assert (
        page.post(
            f"{begun}/note", json={"text": "here"}, headers={"Sec-Fetch-Site": "cross-site"}
        ).status_code
        == 403
    )
    assert (
        page.post(
            f"{begun}/note", json={"text": "here"}, headers={"Sec-Fetch-Site": "same-origin"}
        ).status_code
        == 200
    )


def test_every_answer_has_a_policy_without_inline_script_and_every_page_keeps_to_it(
    page, client, begun
):
    page.post(f"{begun}/observe", json={"y": 1.0})
    answers = [
        page.get(path, headers={"Accept": "text/html"})
        for path in (*PATHS, "/nowhere", "/experiments/99")
    ]
    answers += [
        client(Accept="text/html").get("/"),
        client(Host="evil").get("/"),
        client().get("/", params={"token": TOKEN}),
    ]
    answers += [page.post(f"{begun}/observe", content="{"), page.get("/experiments/x")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        if answer.headers["content-type"].startswith("text/html"):
            text = answer.text
            assert not re.search(r"<script(?![^>]* src=\"/static/)", text)
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
            assert not re.search(r"(src|href|action|url)\s*=\s*[\"']?\s*(https?:)?//", text)


def test_long_bodies_are_refused_announced_or_not(instrument, begun):
    long = b'{"text": "' + b"x" * 2**20 + b'"}'
    assert instrument.post(f"{begun}/note", content=long).status_code == 413
    pieces = (
        long[i : i + 65536] for i in range(0, len(long), 65536)
    )  # without a length in the header
    assert instrument.post(f"{begun}/note", content=pieces).status_code == 413
    lied = instrument.post(
        f"{begun}/note", content=b"{}", headers={"Content-Length": "99999999999"}
    )
    assert lied.status_code == 413
    short = b'{"text": "' + b"x" * (2**20 - 12) + b'"}'
    kind = {"Content-Type": "application/json"}
    assert (
        instrument.post(f"{begun}/note", content=short, headers=kind).status_code == 422
    )  # too long for a note, but read
    assert instrument.get(f"{begun}/version").json() == {"sequence": 1}


BAD_VALUES = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "[NaN]",
    "[1e999]",
    '"NaN"',
    '"1e999"',
    '"1,5"',
    '""',
    '" "',
    '"0x10"',
    '"1_0"',
    '"1 2"',
    "[1, 2]",
    "[]",
    "null",
    "true",
    "[[1]]",
    "[[[[1]]]]",
    "{}",
    '{"a": 1}',
    '"inf"',
    "1e300",
    '"1e-400"',
    "[null]",
    '["a"]',
    '"\\ud800"',
    "9" * 400,
    "[" * 500 + "]" * 500,
    '"' + "1" * 5000 + '"',
    '"<b>1</b>"',
)
BAD_BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"3",
    b'"y"',
    b"\xff",
    b"{}",
    b'{"y": 1, "y": 2}',
    b'{"y": 1, "z": 2}',
    b'{"y": 1, "step": 1.5}',
    b'{"y": 1, "step": "1"}',
    b'{"y": 1, "step": true}',
    b'{"y": 1, "step": 0}',
    b'{"y": 1, "step": 2}',
    b'{"y": 1, "step": 99999999999999999999999}',
    b'{"y": 1, "token": 5}',
    b'{"y": 1, "token": ""}',
    b'{"y": 1, "token": "\\u0000"}',
    b'{"y": 1, "ask": 1}',
    b'{"y": 1, "xi": 9}',
    b'{"y": 1, "xi": "a"}',
    b'{"y": 1, "\\ud800": 1}',
    b'{"y": 1, "proposal": NaN}',
    b'{"y": 1, "proposal": 77}',
    b"[" * 100000,
)


def test_what_is_no_outcome_is_refused_with_a_sentence_and_stores_nothing(instrument, begun):
    for body in (*(f'{{"y": {value}}}'.encode() for value in BAD_VALUES), *BAD_BODIES):
        answer = instrument.post(
            f"{begun}/observe", content=body, headers={"Content-Type": "application/json"}
        )
        assert 400 <= answer.status_code < 500, (body[:80], answer.text)
        detail = answer.json()["detail"]
        assert isinstance(detail, str), body[:80]
        assert 10 < len(detail) < 600, body[:80]
        assert "input" not in answer.json(), body[:80]
        assert instrument.get(f"{begun}/version").json() == {"sequence": 1}, body[:80]


BAD_CHANGES = {
    "foresee": (
        b"{}",
        b'{"y": NaN}',
        b'{"y": "1,5"}',
        b'{"y": [1, 2]}',
        b'{"y": 1, "xi": 9}',
        b'{"y": 1, "z": 1}',
        b"[]",
    ),
    "limit": (
        b'{"low": [1, 2]}',
        b'{"low": "x"}',
        b'{"low": NaN}',
        b'{"low": 1, "high": -1}',
        b'{"low": -9}',
        b'{"low": true}',
        b'{"low": 0, "sequence": 99}',
        b'{"lower": 0}',
        b'{"low": [[0]]}',
        b'{"high": "1e999"}',
        b'{"low": {}}',
    ),
    "plan": (
        b"{}",
        b'{"steps": 0}',
        b'{"steps": 1.5}',
        b'{"steps": "3"}',
        b'{"steps": true}',
        b'{"steps": 1000000}',
        b'{"steps": 2, "sequence": 99}',
        b'{"steps": 99999999999999999999}',
    ),
    "refine": (
        b'{"seconds": 0}',
        b'{"seconds": 601}',
        b'{"seconds": 1e999}',
        b'{"seconds": "5"}',
        b'{"second": 5}',
        b'{"seconds": -1}',
    ),
}


def test_what_is_no_change_is_refused_with_a_sentence_and_stores_nothing(instrument, begun):
    seen = instrument.get(begun).json()["sequence"]
    for verb, bodies in BAD_CHANGES.items():
        for body in bodies:
            answer = instrument.post(
                f"{begun}/{verb}", content=body, headers={"Content-Type": "application/json"}
            )
            assert 400 <= answer.status_code < 500, (verb, body, answer.text)
            assert 10 < len(answer.json()["detail"]) < 600, (verb, body)
            assert "input" not in answer.json(), (verb, body)
            assert instrument.get(f"{begun}/version").json() == {"sequence": seen}, (verb, body)


def test_only_json_is_taken(instrument, begun):
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
    ):
        answer = instrument.post(
            f"{begun}/observe", content=b'{"y": 1}', headers={"Content-Type": kind}
        )
        assert answer.status_code == 415


def test_what_people_write_is_shown_escaped(page):
    answer = page.post("/api/experiments", json={"name": EVIL[:80]})
    assert answer.status_code == 201
    number = answer.json()["experiment"]
    page.post(f"/api/experiments/{number}/note", json={"text": EVIL})
    for path in ("/", "/list", f"/experiments/{number}", f"/experiments/{number}/now"):
        text = page.get(path).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "&lt;script&gt;alert(1)" in text


def test_names_and_units_of_a_task_are_shown_escaped():
    evil = (Quantity(EVIL, EVIL),)
    row = Foresight(0.5, (1.0,), (2.0,))
    text = render(
        "_outlook.html", designs=evil, outcomes=evil, rows=(row,), problem=None, sequence=1
    )
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") == 4
    pairs = draw_pairs([*evil, *evil], np.zeros((9, 2)), np.zeros((9, 2)))
    assert "<script>alert" not in pairs
    assert "<img" not in pairs


def test_files_are_named_by_us(page):
    number = page.post("/api/experiments", json={"name": '../../x"; filename="evil.exe'}).json()[
        "experiment"
    ]
    for ending in ("csv", "json"):
        answer = page.get(f"/experiments/{number}/experiment.{ending}")
        assert (
            answer.headers["content-disposition"]
            == f'attachment; filename="experiment-{number}.{ending}"'
        )
    for path in (
        "../app.py",
        "..%2Fapp.py",
        "%2e%2e/app.py",
        "live.css/../../app.py",
        "/etc/passwd",
        "live.css%00",
        "nothing.js",
    ):
        answer = page.get(f"/static/{path}")
        assert answer.status_code == 404
        assert "import" not in answer.text
    for number_ in ("0", "-1", "999999999999999999999999", "1e3", "x", "..%2f1", "%3Cscript%3E"):
        answer = page.get(f"/experiments/{number_}", headers={"Accept": "text/html"})
        assert answer.status_code in (404, 422)
        assert "<script>" not in answer.text


def test_the_framework_has_no_pages_that_load_from_outside(page):
    assert page.get("/docs").status_code == 404
    assert page.get("/redoc").status_code == 404
    schema = page.get("/openapi.json").json()
    observe = schema["paths"]["/api/experiments/{number}/observe"]["post"]
    assert set(observe["responses"]) >= {"200", "400", "401", "404", "409", "413", "422"}
    fields = schema["components"]["schemas"]["Observe"]["properties"]
    assert set(fields) == {"y", "xi", "proposal", "step", "token", "ask"}
    assert all("description" in field for field in fields.values())
    assert not [path for path in schema["paths"] if not path.startswith("/api/")]
    assert schema["components"]["securitySchemes"]
