"""Who may ask: checked before anything else, for every method and every path.

    Host      one of our names: a foreign name that was pointed at this machine gets nothing
    Origin    ours or none; with a cookie, a request that changes something needs one
    token     the cookie that the first link set, or `Authorization: Bearer` for instruments
    body      at most 1 MiB; of the JSON interface, strict JSON: no NaN, no 1e999, no key twice

Answers get a content security policy without inline script or style, and are not to be cached,
framed or sniffed."""

import hmac
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scorebed.runs import strict_json
from scorebed.web.rendering import render

LARGEST_BODY = 2**20
SAFE = ("GET", "HEAD", "OPTIONS")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Door(NamedTuple):
    """The token, and the names of this server. `any_address` is for one that listens everywhere."""

    token: str
    port: int
    names: frozenset[str]
    any_address: bool = False

    @property
    def cookie(self) -> str:
        """Its name, with the port: browsers share cookies among the ports of a host."""
        return f"scorebed-{self.port}"

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name, port = host, "80"
        if ":" in host and not host.endswith("]"):
            name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        return name.lower() in self.names or (self.any_address and _is_address(name))

    def opens(self, token: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())


class Refusal(NamedTuple):
    """A status and its sentence."""

    status: int
    sentence: str


class Guard:
    """The ASGI application around ours."""

    def __init__(self, app: ASGIApp, door: Door):
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        headers = _headers(scope)
        refusal = self._stranger(scope["method"], headers)
        if refusal is None and _is_first_link(scope):
            await self._first_link(scope)(scope, receive, marked)
            return
        refusal = refusal or self._without_token(scope["method"], headers)
        body = b""
        if refusal is None:
            found = await _read(receive, headers)
            refusal = (
                Refusal(413, f"A request may have {LARGEST_BODY:,} bytes at most.")
                if found is None
                else None
            )
            body = found or b""
        if refusal is None and scope["method"] not in SAFE:
            refusal = _not_json(headers, body)
        if refusal is not None:
            await refuse(headers, refusal)(scope, receive, marked)
            return
        await self.app(scope, _again(body, receive), marked)

    def _stranger(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.door.knows(host):
            return Refusal(
                421,
                "This server does not go by that name. Open the link that it printed when it "
                "started.",
            )
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return Refusal(403, "The request comes from another page.")
        if method not in SAFE and headers.get("sec-fetch-site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            return Refusal(403, "The request comes from another page.")
        return None

    def _without_token(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.door.opens(bearer.strip()):
            return None
        if not self.door.opens(_cookie(headers, self.door.cookie)):
            return Refusal(
                401,
                "Open the link that the server printed when it started: it has the token that "
                "opens this page.",
            )
        if method not in SAFE and "origin" not in headers:
            return Refusal(
                403,
                "A request with a cookie needs an Origin. Instruments send 'Authorization: "
                "Bearer TOKEN'.",
            )
        return None

    def _first_link(self, scope: Scope) -> Response:
        """The token becomes a cookie. The page moves on by itself: after a redirect from another
        site browsers send no strict cookie.
        """
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        if not self.door.opens(token):
            return refuse(
                _headers(scope),
                Refusal(
                    403, "This link is out of date. Open the one that the server printed last."
                ),
            )
        response = HTMLResponse(render("welcome.html"))
        response.set_cookie(
            self.door.cookie, self.door.token, httponly=True, samesite="strict", path="/"
        )
        return response


def refuse(headers: Mapping[str, str], refusal: Refusal) -> Response:
    """A page for people, JSON for programs."""
    status = refusal.status
    sentence = refusal.sentence.encode(
        "utf-8", "backslashreplace"
    ).decode()  # halves of characters cannot be sent
    if "text/html" in headers.get("accept", ""):
        return HTMLResponse(render("refused.html", status=status, sentence=sentence), status)
    return problem(status, sentence)


def problem(status: int, sentence: str, **more: object) -> Response:
    """The JSON of everything that was refused."""
    text = strict_json.dumps({"detail": sentence, **more})
    return Response(text, status, media_type="application/json")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_first_link(scope: Scope) -> bool:
    return scope["path"] == "/" and scope["method"] == "GET" and b"token=" in scope["query_string"]


def _headers(scope: Scope) -> dict[str, str]:
    """Names in lower case. Repeated headers are joined, and then match no name, origin or token."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _cookie(headers: Mapping[str, str], name: str) -> str:
    for part in headers.get("cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def _not_json(headers: Mapping[str, str], body: bytes) -> Refusal | None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Refusal(415, "Send JSON, with the header 'Content-Type: application/json'.")
    try:
        strict_json.loads(body)
    except ValueError as error:
        return Refusal(400, f"The body is not JSON: {error}.")
    return None


async def _read(receive: Receive, headers: Mapping[str, str]) -> bytes | None:
    """The whole body; None if it is too long, by its announced or its actual length."""
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced[:20]) > LARGEST_BODY:
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body again for the application; then whatever comes."""
    waiting = True

    async def read() -> Message:
        nonlocal waiting
        if waiting:
            waiting = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return read
