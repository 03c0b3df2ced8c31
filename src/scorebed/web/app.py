"""The application: pages and JSON interface behind the guard, and every error as a sentence with a
status.
"""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from scorebed import __version__
from scorebed.errors import ConflictError, RunFolderError, ScorebedError
from scorebed.web.api import ImprobableError, make_api
from scorebed.web.guard import Door, Guard, Refusal, problem, refuse
from scorebed.web.hub import BusyError, Hub, MissingError
from scorebed.web.pages import make_pages
from scorebed.web.requests import BadFieldError


def make_app(hub: Hub, door: Door) -> ASGIApp:
    """The ASGI application of one run's experiments."""
    # The framework's documentation pages load scripts from elsewhere.
    app = FastAPI(
        title="scorebed live",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        description="A live experiment: post an outcome, get the next design. Send "
        "`Authorization: Bearer TOKEN`.",
    )
    app.include_router(make_api(hub))
    app.include_router(make_pages(hub))
    app.add_exception_handler(ScorebedError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _unknown)
    return Guard(app, door)


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, ImprobableError):
        return problem(409, str(error), improbable=True, tail=error.tail)
    if isinstance(error, BadFieldError):
        return problem(422, str(error), field=error.field)
    status = 422
    for kind, its_status in (
        (MissingError, 404),
        (ConflictError, 409),
        (RunFolderError, 503),
        (BusyError, 503),
    ):
        if isinstance(error, kind):
            status = its_status
    return _answer(request, status, str(error))


def _malformed(request: Request, error: Exception) -> Response:
    """Only the place and the reason: the framework would echo its input, which may not be JSON."""
    assert isinstance(error, RequestValidationError)
    reasons = [
        f"{'.'.join(str(part) for part in e['loc'][1:]) or 'the body'}: {e['msg']}"
        for e in error.errors()
    ]
    return _answer(
        request, 422, f"The request was not understood. {'; '.join(reasons[:5])[:1000]}."
    )


def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: "There is no such page.",
        405: "That cannot be done here.",
        400: "The body is not JSON.",
    }
    return _answer(
        request, error.status_code, sentences.get(error.status_code, "That did not work.")
    )


def _answer(request: Request, status: int, sentence: str) -> Response:
    return refuse({"accept": request.headers.get("accept", "")}, Refusal(status, sentence))
