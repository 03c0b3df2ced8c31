"""An agent for Bluesky-style ask/tell loops: a trained policy says where a beamline measures next.

It has the methods that `bluesky_adaptive.agents.base.Agent` asks of an agent; at a beamline add the two that know its plans:

    class BeamlineAgent(ExperimentAgent, Agent):
        def measurement_plan(self, point): return "move_and_count", [], {"position": float(point[0])}
        def unpack_run(run): return run.primary.data["motor"].read(), run.primary.data["detector"].read()
"""

import numpy as np

import scorebed as sb


class ExperimentAgent:
    """`ask`, `tell` and `report` of a live experiment; what is asked is stored before it is returned."""

    def __init__(self, session: sb.Session):
        self.session = session

    def ask(self, batch_size: int):
        """The next points to measure, fewer at the end; asked again, those that still wait for an outcome."""
        state = self.session.state
        designs = () if state.finished or state.complete else self.session.ask(batch_size)
        doc = {"proposal": [d.id for d in designs], "step": [d.step for d in designs]}
        return doc, [np.asarray(d.design) for d in designs]

    def tell(self, x, y):
        """An outcome at `x`, where the motors came to stand: it answers the nearest point that waits for one."""
        x = np.atleast_1d(np.asarray(x, float))
        nearest = min(self.session.ask(1) + self.session.state.pending, key=lambda d: np.abs(x - d.design).sum())
        record = self.session.tell(y, x, proposal=nearest.id)
        return {"step": [record.step], "x": [list(record.used)], "y": [list(record.y)]}

    def report(self, **kwargs):
        """What is known: mean and standard deviation of every parameter, and the information gained in nats."""
        posterior = self.session.posterior()
        known = {m.quantity.name: [m.mean, m.sd] for m in posterior.marginals}
        return {**known, "information": [posterior.information]}
