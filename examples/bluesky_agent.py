"""An agent for Bluesky-style ask/tell loops: a trained policy says where a beamline measures next.

It has the methods that `bluesky_adaptive.agents.base.Agent` asks of an agent. At a beamline inherit
from both, and add the two methods that know its plans: `measurement_plan` and `unpack_run`.
"""

import numpy as np

import scorebed as sb


class ExperimentAgent:
    """`ask`, `tell` and `report` of a live experiment, which stores all of it."""

    def __init__(self, session: sb.Session):
        self.session = session

    def ask(self, batch_size: int):
        """The next points to measure, fewer at the end; first those that still wait."""
        state = self.session.state
        designs = () if state.finished or state.complete else self.session.ask(batch_size)
        doc = {"proposal": [d.id for d in designs], "step": [d.step for d in designs]}
        return doc, [np.asarray(d.design) for d in designs]

    def tell(self, x, y):
        """An outcome at `x`, where the motors came to stand; of the nearest point that waits."""
        x = np.atleast_1d(np.asarray(x, float))
        nearest = min(
            self.session.ask(1) + self.session.state.pending,
            key=lambda d: np.abs(x - d.design).sum(),
        )
        record = self.session.tell(y, x, proposal=nearest.id)
        return {"step": [record.step], "x": [list(record.used)], "y": [list(record.y)]}

    def report(self, **kwargs):
        """Mean and standard deviation of every parameter, and the information gained in nats."""
        posterior = self.session.posterior()
        known = {m.quantity.name: [m.mean, m.sd] for m in posterior.marginals}
        return {**known, "information": [posterior.information]}
