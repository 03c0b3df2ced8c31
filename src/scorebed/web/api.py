"""The JSON interface: `POST /api/experiments/{id}/observe` and its siblings, for instruments and
for the script of the page.

Endpoints are plain functions: the framework runs them in threads, so that a posterior never delays
a request for a design. A measurement is on the disk before its answer leaves; the answer has the
next design, so that one request per step is enough. Whoever asks for a design waits for it, unless
the request says `Prefer: respond-async`, as those of the page do: then the answer comes at once,
with `finding` where the design follows, and an improbable outcome is judged afterwards where the
posterior is not in view."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Security
from fastapi.security import HTTPBearer
from starlette.responses import Response

from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.session.conflicts import meant, repeated
from scorebed.session.events import StepRecord, Vector
from scorebed.session.messages import improbable
from scorebed.session.posterior import IMPROBABLE
from scorebed.session.session import Session
from scorebed.session.validation import ParsedEntry, Submission
from scorebed.web.hub import MOMENT, Hub
from scorebed.web.requests import (
    Answer,
    BadFieldError,
    Begin,
    Correct,
    Following,
    Item,
    Observe,
    Problem,
    Refine,
    RefineAnswer,
    Remark,
    SetHorizon,
    SetLimits,
    Skip,
    Version,
    WhatIf,
    Which,
    design_of,
    read_entry,
    read_limits,
    record_of,
    step_of,
)

Prefer = Annotated[
    str | None,
    Header(description="`respond-async`: answer at once, even if the next design is not there."),
]
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in (
        (400, "Not JSON, or JSON with NaN, 1e999 or a repeated key"),
        (401, "No token"),
        (404, "No such experiment"),
        (409, "It does not fit what is recorded already, or it is improbable and `ask` was set"),
        (413, "More than 1 MiB"),
        (422, "A value that is refused, with a sentence that says why"),
    )
}


class ImprobableError(ScorebedError):
    """An outcome that somebody should look at again. Nothing is wrong with it otherwise."""

    def __init__(self, sentence: str, tail: float):
        Exception.__init__(self, sentence)
        self.tail = tail


def make_api(hub: Hub) -> APIRouter:
    """The routes under /api."""
    bearer = HTTPBearer(
        auto_error=False,
        description="The token that the server printed; the page's cookie will do too.",
    )
    api = APIRouter(prefix="/api", responses=REFUSALS, dependencies=[Security(bearer)])

    @api.get("/experiments")
    def experiments() -> list[Item]:
        """All experiments of the file, the newest first."""
        return [
            Item(
                id=e.id,
                name=e.name,
                task=e.task,
                created=e.created,
                taken=len(state.records),
                horizon=state.horizon,
                finished=state.finished,
                ours=ours,
            )
            for e, state, ours in hub.listed()
        ]

    @api.post("/experiments", status_code=201)
    def begin(body: Begin, prefer: Prefer = None) -> Answer:
        """Begin an experiment."""
        begun = hub.begin(body.name, seed=body.seed, token=body.token)
        return _answer(hub, begun.experiment.id, prefer)

    @api.get("/experiments/{number}")
    def experiment(number: int, prefer: Prefer = None) -> Answer:
        """Where it stands, and the next design, which is stored before it is shown."""
        return _answer(hub, number, prefer)

    @api.get("/experiments/{number}/version")
    def version(number: int) -> Version:
        """For those who watch: poll it, and reload when it grew."""
        return Version(sequence=hub.session(number).state.sequence)

    @api.get("/experiments/{number}/summary")
    def summary(number: int) -> dict[str, Any]:
        """Everything but the particles: steps, notes, posterior with quantiles, information gained
        and expected.
        """
        hub.knowledge(number)
        return {
            name: value for name, value in hub.session(number).summary().items() if name != "db"
        }

    @api.post("/experiments/{number}/observe", response_model=Answer)
    def observe(number: int, body: Observe, prefer: Prefer = None) -> Response:
        """Store the outcome of the next step."""
        session, hurried = hub.session(number), _hurried(prefer)
        entry = read_entry(session.task, body.y, body.xi)
        judged = body.ask and (not hurried or hub.can_judge(number))
        if judged:
            hub.wait_until_warm()
            _ask_about_next(session, entry, body)
        store = session.observe if hurried else session.exchange
        record = store(entry, step=body.step, proposal=_meant(session, body), token=body.token)
        if body.ask and not judged:
            hub.judge_later(number, record)
        # Serialised here: the framework would validate the answer again, in another thread.
        answer = _answer(hub, number, prefer, record)
        return Response(answer.model_dump_json(), media_type="application/json")

    @api.post("/experiments/{number}/correct")
    def correct(number: int, body: Correct, prefer: Prefer = None) -> Answer:
        """Replace the outcome of a step. What was stored before stays in the history."""
        session = hub.session(number)
        entry = read_entry(session.task, body.y, body.xi)
        before = record_of(session.state, body.step)
        judged = body.ask and (not _hurried(prefer) or hub.can_judge(number))
        if judged and before is not None and before.used is not None and before.y != entry.y:
            earlier = session.state.records[: body.step - 1]
            _ask(session, earlier, entry.xi or before.used, entry.y)
        with hub.acting(number, None):
            record = session.correct(body.step, entry)
        if body.ask and not judged:
            hub.judge_later(number, record)
        return _answer(hub, number, prefer, record)

    @api.post("/experiments/{number}/skip")
    def skip(number: int, body: Skip, prefer: Prefer = None) -> Answer:
        """Give up the next step, because the trial failed; only where steps are independent."""
        with hub.acting(number, body.sequence) as session:
            record = session.skip(step=body.step, proposal=body.proposal)
        return _answer(hub, number, prefer, record)

    @api.post("/experiments/{number}/undo")
    def undo(number: int, body: Which, prefer: Prefer = None) -> Answer:
        """Take back what came last: a step, a change, or the end. Say which step, or the `sequence`
        that you have seen.
        """
        if body.step is None and body.sequence is None:
            raise InvalidValueError(
                "an undo",
                got="neither step nor sequence",
                expected="one of them",
                fix="a request that is sent twice would otherwise undo two steps.",
            )
        with hub.acting(number, body.sequence) as session:
            session.undo(step=body.step)
        return _answer(hub, number, prefer)

    @api.post("/experiments/{number}/note")
    def note(number: int, body: Remark, prefer: Prefer = None) -> Answer:
        """Keep a remark with the next step."""
        with hub.acting(number, None) as session:
            session.note(body.text)
        return _answer(hub, number, prefer)

    @api.post("/experiments/{number}/finish")
    def finish(number: int, body: Which, prefer: Prefer = None) -> Answer:
        """End the experiment. `undo` takes it back."""
        with hub.acting(number, body.sequence) as session:
            session.finish()
        return _answer(hub, number, prefer)

    @api.get("/experiments/{number}/outlook")
    def outlook(number: int) -> list[Following]:
        """Which design would follow which outcome, from outcomes that are low among those to expect
        to high ones.
        """
        hub.knowledge(number)
        each = hub.session(number).outlook()
        return [Following(level=one.level, y=list(one.y), design=list(one.design)) for one in each]

    @api.post("/experiments/{number}/foresee")
    def foresee(number: int, body: WhatIf) -> Following:
        """The design that would follow an outcome. Nothing is stored."""
        session = hub.session(number)
        entry = read_entry(session.task, body.y, body.xi)
        return Following(y=list(entry.y), design=list(session.foresee(entry)))

    @api.post("/experiments/{number}/limit")
    def limit(number: int, body: SetLimits, prefer: Prefer = None) -> Answer:
        """Allow fewer designs from now on, or all of the task's again. What the policy wants
        outside is moved to the nearest.
        """
        with hub.acting(number, body.sequence) as session:
            quantities = session.task.designs.quantities
            low = read_limits(body.low, quantities, "low")
            high = read_limits(body.high, quantities, "high")
            try:
                session.limit(low, high)
            except ConflictError:
                raise
            except InvalidValueError as error:
                raise BadFieldError(error, "low-0") from None
        return _answer(hub, number, prefer)

    @api.post("/experiments/{number}/plan")
    def plan(number: int, body: SetHorizon, prefer: Prefer = None) -> Answer:
        """Another number of steps in all; the policy stays as it is unless it is refined."""
        with hub.acting(number, body.sequence) as session:
            session.set_horizon(body.steps)
        return _answer(hub, number, prefer)

    @api.post("/experiments/{number}/refine")
    def refine(number: int, body: Refine, prefer: Prefer = None) -> RefineAnswer:
        """Train the policy for the steps that remain. It is kept if it is better; the answer comes
        when the time is over.
        """
        with hub.refining(number) as session:
            found = session.refine(float(body.seconds))
        answer = _answer(hub, number, prefer).model_dump()
        return RefineAnswer(**answer, kept=found.kept, sentence=found.sentence)

    return api


def _hurried(prefer: str | None) -> bool:
    """Whether the answer should not wait for what takes long."""
    return prefer is not None and "respond-async" in prefer.lower()


def _answer(hub: Hub, number: int, prefer: str | None, record: StepRecord | None = None) -> Answer:
    """Whatever was stored stays stored, even if there is no next design."""
    found = hub.next_designs(number, patience=MOMENT if _hurried(prefer) else None)
    session = hub.session(number)
    state = session.state
    pending = [] if state.finished else [design_of(proposal) for proposal in state.pending]
    return Answer(
        experiment=session.experiment.id,
        name=session.name,
        sequence=state.sequence,
        step=state.step,
        horizon=state.horizon,
        finished=state.finished,
        stored=None if record is None else step_of(record),
        next=pending[0] if pending else None,
        pending=pending,
        finding=found.finding,
        problem=found.problem,
    )


def _meant(session: Session, body: Observe) -> int | None:
    """The proposal that is meant. Visitors share the session, so what it returned last says nothing
    about this one.
    """
    if body.proposal is not None or body.step is not None:
        return body.proposal
    state = session.state
    if state.finished or state.complete or len(state.pending) > 1:
        return None
    return session.propose().id


def _ask_about_next(session: Session, entry: ParsedEntry, body: Observe) -> None:
    """Only what is new is asked back; the session recognises repetitions."""
    state = session.state
    sent = Submission(*entry, body.step, body.proposal, body.token)
    if repeated(state, sent) is None and state.pending and not state.finished:
        used = entry.xi or meant(state, body.proposal).design
        _ask(session, state.records, used, entry.y)


def _ask(session: Session, records: Sequence[StepRecord], used: Vector, y: Vector) -> None:
    try:
        tail = session.beliefs.surprise(records, used, y)
    except ScorebedError:
        return  # without a posterior nothing is asked
    if tail < IMPROBABLE:
        raise ImprobableError(improbable(session.task, y), tail)
