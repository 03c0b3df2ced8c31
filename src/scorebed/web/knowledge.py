"""What is known after the steps so far, in the form that a page shows: marginals, information, what
to expect next, pictures.
"""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from scorebed.errors import ScorebedError
from scorebed.session.events import ExperimentState
from scorebed.session.posterior import QUANTILES, MarginalSummary, Posterior
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
    next: tuple[Expected, ...] = ()
    information_picture: Markup = Markup("")
    marginal_pictures: tuple[Markup, ...] = ()
    space_picture: Markup = Markup("")
    space_caption: str = ""
    pairs_picture: Markup = Markup("")
    pairs_caption: str = ""
    warnings: tuple[str, ...] = ()
    scope: str | None = None


def know(session: Session, state: ExperimentState) -> Knowledge:
    """Everything about `state`. Without a posterior there is the reason in its place, and a picture
    of the steps.
    """
    proposal = None if state.finished else state.proposal
    number = None if proposal is None else proposal.id
    beliefs = session.beliefs
    try:
        prior, posterior = beliefs.posterior(()), beliefs.posterior(state.records)
        gained = beliefs.information(state.records)
        predicted = () if proposal is None else beliefs.predict(state.records, proposal.design)
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
        tuple(
            Expected(
                m.quantity.name, m.quantity.unit, m.quantiles[LOW], m.quantiles[HIGH], m.shares
            )
            for m in predicted
        ),
        draw_information(
            gained, [0, *(r.step for r in state.measured)], state.horizon, session.expected
        ),
        _marginal_pictures(prior, posterior),
        space.svg,
        space.caption,
        draw_pairs(posterior.quantities, prior.theta, posterior.theta),
        caption(posterior.quantities),
        session.warnings(),
        session.scope(),
    )


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
