"""The pages: whole ones, and the parts of them that change while somebody watches.

A part is one or more elements with an id and a `data-key`; the script replaces those whose key has
changed and leaves the rest alone, so that what is being typed and where the focus is stay as they
are."""

from importlib import resources

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from scorebed.errors import ScorebedError
from scorebed.runs.load import Run
from scorebed.session.events import LONGEST_HORIZON, ExperimentState
from scorebed.session.messages import wanted_sentence
from scorebed.session.posterior import QUANTILES
from scorebed.session.validation import LONGEST_NAME, LONGEST_NOTE
from scorebed.web.hub import MOMENT, Hub
from scorebed.web.rendering import render
from scorebed.web.requests import LONGEST_REFINING

STATIC = {
    "live.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "changes.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def make_pages(hub: Hub) -> APIRouter:
    """The routes that people see. They are not part of the interface for instruments."""
    pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @pages.get("/")
    def front() -> str:
        return render("front.html", **_front(hub))

    @pages.get("/list")
    def front_part() -> str:
        return render("_list.html", **_front(hub))

    @pages.get("/version")
    def version() -> Response:
        return Response(hub.version(), media_type="text/plain")

    @pages.get("/experiments/{number}")
    def experiment(number: int) -> str:
        return render("experiment.html", longest_note=LONGEST_NOTE, **_now(hub, number))

    @pages.get("/experiments/{number}/now")
    def now(number: int) -> str:
        return render("_now.html", **_now(hub, number))

    @pages.get("/experiments/{number}/knowledge")
    def knowledge(number: int) -> str:
        return render("_knowledge.html", known=hub.knowledge(number), levels=QUANTILES)

    @pages.get("/experiments/{number}/outlook")
    def outlook(number: int) -> str:
        return render("_outlook.html", **_outlook(hub, number))

    @pages.get("/experiments/{number}/experiment.csv")
    def as_csv(number: int) -> Response:
        return _file(
            hub.session(number).export_csv(), f"experiment-{number}.csv", "text/csv; charset=utf-8"
        )

    @pages.get("/experiments/{number}/experiment.json")
    def as_json(number: int) -> Response:
        return _file(
            hub.session(number).export_json(), f"experiment-{number}.json", "application/json"
        )

    @pages.get("/static/{name}")
    def static(name: str) -> Response:
        # Names are looked up, never made into paths.
        if name not in STATIC:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(_static(name), media_type=STATIC[name])

    return pages


def _front(hub: Hub) -> dict[str, object]:
    listed = hub.listed()
    return {
        "run": _run(hub.run),
        "open": [item for item in listed if not item.state.finished],
        "finished": [item for item in listed if item.state.finished],
        "version": hub.version(),
        "longest_name": LONGEST_NAME,
    }


def _now(hub: Hub, number: int) -> dict[str, object]:
    found, session = hub.next_designs(number, patience=MOMENT), hub.session(number)
    state = session.state
    quantities = session.task.designs.quantities
    return {
        "run": _run(session.run),
        "experiment": session.experiment,
        "state": state,
        "pending": () if state.finished else state.pending,
        "finding": found.finding and not (state.finished or state.complete),
        "problem": found.problem,
        "designs": quantities,
        "outcomes": session.task.outcomes,
        "can_skip": session.task.exchangeable_steps,
        "wanted": {each.id: wanted_sentence(each, quantities) for each in state.pending},
        "circumstances": session.circumstances(),
        "trained_horizon": session.experiment.horizon,
        "longest_plan": LONGEST_HORIZON,
        "longest_refining": LONGEST_REFINING,
        "moved": any(r.used not in (None, r.proposal.design) for r in state.records),
        "notes": _notes(state),
    }


def _outlook(hub: Hub, number: int) -> dict[str, object]:
    session = hub.session(number)
    found: dict[str, object] = {
        "designs": session.task.designs.quantities,
        "outcomes": session.task.outcomes,
        "rows": (),
        "problem": None,
    }
    try:
        hub.knowledge(number)
        state = session.state
        found["sequence"] = state.sequence
        if state.finished or state.complete:
            return found | {"problem": "No step is left."}
        if state.step == state.horizon:
            return found | {"problem": "This is the last step: no design follows it."}
        return found | {"rows": session.outlook()}
    except ScorebedError as error:
        return found | {"problem": str(error), "sequence": session.state.sequence}


def _notes(state: ExperimentState) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for note in state.notes:
        found.setdefault(note.step, []).append(note.text)
    return found


def _run(run: Run) -> dict[str, str]:
    return {"name": run.path.resolve().name, "task": run.config.task, "method": run.config.method}


def _static(name: str) -> bytes:
    return resources.files("scorebed.web").joinpath(f"static/{name}").read_bytes()


def _file(text: str, name: str, kind: str) -> Response:
    return Response(
        text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
