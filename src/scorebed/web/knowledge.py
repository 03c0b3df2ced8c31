"""What is known after the steps so far, in the form that a page shows: marginals, information, what
to expect next, pictures.
"""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from scorebed.errors import ScorebedError
from scorebed.session.events import ExperimentState
from scorebed.session.messages import improbable
from scorebed.session.posterior import IMPROBABLE, QUANTILES, MarginalSummary, Posterior
from scorebed.session.session import Session
from scorebed.session.what_if import Expectation
from scorebed.web.pairs import caption, draw_pairs
from scorebed.web.pictures import Curve, draw_information, draw_marginal, draw_space

LOW, HIGH = QUANTILES.index(0.05), QUANTILES.index(0.95)


class Expected(NamedTuple):
    """The next outcome, one coordinate of it: 90% lie between; and the share of each value, where
    these have names.
    """

    name: str
    unit: str
    low: float
    high: float
    shares: tuple[tuple[str, float], ...] = ()


class Knowledge(NamedTuple):
    """As of the first `sequence` events. `problem` is a sentence where there is no posterior or a
    doubtful one.
    """

    sequence: int
    proposal: int | None
    problem: str | None
    marginals: tuple[MarginalSummary, ...] = ()
    information: float | None = None
    expected: Expectation | None = None
    ess: float = 0.0
    particles: int = 0
    next: tuple[tuple[int, tuple[Expected, ...]], ...] = ()
    """What to expect at each pending design, with its number."""
    information_picture: Markup = Markup("")
    marginal_pictures: tuple[Markup, ...] = ()
    space_picture: Markup = Markup("")
    space_caption: str = ""
    pairs_picture: Markup = Markup("")
    pairs_caption: str = ""
    warnings: tuple[str, ...] = ()
    scope: str | None = None
    stopping: str | None = None
    """Whether it is time to stop, where somebody said what information is worth."""


def know(
    session: Session, state: ExperimentState, unasked: frozenset[int] = frozenset()
) -> Knowledge:
    """Everything about `state`. Without a posterior there is the reason in its place, and a picture
    of the steps. `unasked` are outcomes, by their events, that were stored before anybody could say
    whether they are improbable.
    """
    pending = () if state.finished else state.pending
    number = pending[0].id if pending else None
    beliefs = session.beliefs
    try:
        prior, posterior = beliefs.posterior(()), beliefs.posterior(state.records)
        gained = beliefs.information(state.records)
        each = {p.step: beliefs.predict(state.records, p.design) for p in pending}
        doubts = _doubts(session, state, unasked)
    except ScorebedError as error:
        space = draw_space(session.task, state, None, (), Curve())
        return Knowledge(
            state.sequence,
            number,
            str(error),
            space_picture=space.svg,
            space_caption=space.caption,
            warnings=session.warnings(),
        )
    predicted = next(iter(each.values()), ())
    if predicted and (not session.task.states_follow_data or len(gained) > session.task.horizon):
        # Compiled for every length: whoever enters an outcome should not wait for that.
        middle = tuple(m.quantiles[len(QUANTILES) // 2] for m in predicted)
        beliefs.surprise(state.records, pending[0].design, middle)
    space = draw_space(session.task, state, posterior, predicted, _curve(session, state))
    return Knowledge(
        state.sequence,
        number,
        posterior.warning,
        posterior.marginals,
        posterior.information,
        session.expected,
        posterior.ess,
        len(posterior.theta),
        tuple((step, tuple(map(_expected, marginals))) for step, marginals in each.items()),
        draw_information(
            gained, [0, *(r.step for r in state.measured)], state.horizon, session.expected
        ),
        _marginal_pictures(prior, posterior),
        space.svg,
        space.caption,
        draw_pairs(posterior.quantities, prior.theta, posterior.theta),
        caption(posterior.quantities),
        (*doubts, *session.warnings()),
        session.scope(),
        session.stopping_sentence(),
    )


def _expected(m: MarginalSummary) -> Expected:
    return Expected(m.quantity.name, m.quantity.unit, m.quantiles[LOW], m.quantiles[HIGH], m.shares)


def _doubts(session: Session, state: ExperimentState, unasked: frozenset[int]) -> tuple[str, ...]:
    """A sentence for each outcome that would have been asked back."""
    found = []
    for i, record in enumerate(state.records):
        if record.sequence in unasked and record.used is not None and record.y is not None:
            tail = session.beliefs.surprise(state.records[:i], record.used, record.y)
            if tail < IMPROBABLE:
                found.append(
                    f"Step {record.step}: {improbable(session.task, record.y)} It was stored "
                    "before that could be said: correct or undo it if it is wrong."
                )
    return tuple(found)


def _marginal_pictures(prior: Posterior, posterior: Posterior) -> tuple[Markup, ...]:
    before, now = prior.theta.T, posterior.theta.T
    return tuple(draw_marginal(posterior.quantities[i], before[i], now[i]) for i in posterior.shown)


def _curve(session: Session, state: ExperimentState) -> Curve:
    """The outcome to expect along the design coordinate, if there is one and steps are
    independent.
    """
    grid = Curve.grid(session.task, state)
    if not grid:
        return Curve()
    levels = np.asarray([session.beliefs.predict(state.records, (x,))[0].quantiles for x in grid])
    return Curve(grid, tuple(levels[:, LOW].tolist()), tuple(levels[:, HIGH].tolist()))
