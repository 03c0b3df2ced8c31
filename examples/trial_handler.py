"""A trial handler like `psychopy.data.StairHandler`, with a trained policy for a staircase.

with sb.Session.open("RUN") as session:
    trials = ExperimentHandler(session)
    for intensity in trials:
        stimulus.contrast = intensity        # draw, wait for a key, …
        trials.addResponse(answered_correctly)
    trials.saveAsText("subject-7.csv")
"""

import scorebed as sb


class ExperimentHandler:
    """Iterates over designs; every one has to be answered by `addResponse` before the next."""

    def __init__(self, session: sb.Session):
        self.session, self.intensity, self.thisTrialN = session, None, -1

    def __iter__(self):
        return self

    def __next__(self):
        """The next design: a number, or a tuple if it has several coordinates."""
        state = self.session.state
        if state.finished or state.complete:
            raise StopIteration
        design = self.session.propose().design
        self.intensity, self.thisTrialN = design[0] if len(design) == 1 else design, state.step - 1
        return self.intensity

    next = __next__

    def addResponse(self, result, intensity=None):
        """The outcome of the trial; `intensity` if another one was used than the one proposed."""
        self.session.observe(result, intensity, step=self.thisTrialN + 1)

    def addOtherData(self, name, value):
        """A remark, kept with the trial."""
        self.session.note(f"{name}: {value}")

    def saveAsText(self, path):
        """All trials as a table."""
        return self.session.export_csv(path)
