"""The dialogue of `scorebed live`: lines in, lines out; the same on a terminal and through a
pipe.
"""

import io
import sys
from collections.abc import Sequence

import numpy as np

from scorebed.cli._output import LEFT, RIGHT, TEXT, print_table, print_text
from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.session.events import Change, Kind, ProposedDesign, StepRecord, Vector
from scorebed.session.messages import wanted_sentence
from scorebed.session.posterior import IMPROBABLE, QUANTILES, MarginalSummary
from scorebed.session.session import Session
from scorebed.session.validation import ParsedEntry, parse_entry, parse_limits, parse_numbers
from scorebed.tasks.spaces import Quantity

WIDTH = 41  # columns of a drawn marginal
RANGE = (0.005, 0.995)  # of the prior, which a drawn marginal spans
REFINING = 30.0  # seconds

HELP = """\
numbers        the outcome, with blanks between numbers:  0.52  or  1.5 -2e-3
numbers @ xi   the outcome, and the design used if it was not the one proposed:  0.52 @ 1.25
u              undo: take the last step or change back
s              skip this step, because the trial failed (only where steps are independent)
c STEP ...     correct a step's outcome, and its design if given:  c 2 0.48  or  c 2 0.48 @ 1.3
n TEXT         keep a note with this step
w ...          what if: the design that would follow an outcome:  w 0.3; alone, from low to high
l LOW:HIGH     limits of the designs from now on, a pair for every coordinate:  l 0:1.5 :3; l off
t STEPS        another number of steps in all than was trained for:  t 10
r SECONDS      refine: train the policy on what is known, for the steps left; 30 s if left out
h              the history: all steps and notes
f              finish the experiment
q              save and quit (everything is stored already)
?              this help"""


CHANGED = {
    Kind.LIMITED: "the limits",
    Kind.PLANNED: "the number of steps",
    Kind.REFINED: "the refined policy",
}


class Dialogue:
    """One sitting at the bench. `hold` returns when the experiment is finished, or the input ends,
    or `q` is entered.
    """

    def __init__(self, session: Session, *, resume: str):
        self.session, self.task, self._resume = session, session.task, resume
        self._proposal: ProposedDesign | None = None
        self._problem = ""  # with the posterior, shown once
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")

    def hold(self) -> None:
        """Talk until the end."""
        state = self.session.state
        seen = f", {len(state.records)} taken before" if state.records else ""
        print_text(f"experiment '{self.session.name}', {state.horizon} steps{seen}; ? for help")
        for sentence in self.session.circumstances():
            print_text(sentence)
        if state.records or not self.task.has_density:
            self._show_knowledge()
        try:
            while self._turn():
                pass
        except KeyboardInterrupt:
            sys.stderr.write(f"\n{self._farewell()}\n")
            raise

    def _turn(self) -> bool:
        """Show what is next, read a line and act on it; False at the end."""
        state = self.session.state
        if state.finished:
            print_text("The experiment is finished.")
            return False
        if state.complete:
            print_text(
                "All steps are taken: f finishes the experiment, u takes the last step back."
            )
            self._proposal, prompt = None, "> "
        else:
            prompt = self._show_design_or_why_not()
        line = self._read(prompt)
        if line is None or line == "q":
            print_text(self._farewell())
            return False
        try:
            self._act(line)
        except ScorebedError as error:
            print_text(f"not stored: {_one_line(error)}")
        return True

    def _act(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        if line == "?":
            print_text(HELP)
        elif line == "u":
            undone = self.session.undo()
            print_text("undone: the end" if undone is None else f"undone: {self._in_words(undone)}")
        elif line == "s":
            print_text(f"stored: {self._in_words(self.session.skip(step=self.session.state.step))}")
        elif line == "h":
            self._show_history()
        elif line == "f":
            self.session.finish()
        elif command == "n":
            self.session.note(rest)
            print_text("noted")
        elif command == "c":
            self._correct(rest)
        elif command == "w":
            self._what_if(rest.strip())
        elif command == "l":
            self._limit(rest.strip())
        elif command == "t":
            self._set_horizon(rest.strip())
        elif command == "r":
            self._refine(rest.strip())
        else:
            self._enter(line)

    def _enter(self, line: str) -> None:
        proposal = self._proposal
        if proposal is None:
            why = (
                "f, u or q: no step is left"
                if self.session.state.complete
                else "a command, while there is no design"
            )
            raise ConflictError("an entry", got=f"'{line[:40]}'", expected=why, fix="? for help.")
        entry = parse_entry(self.task, line)
        if self._sure(entry, None):
            record = self.session.observe(entry, proposal=proposal.id)
            print_text(f"stored: {self._in_words(record)}")
            self._show_knowledge()

    def _correct(self, rest: str) -> None:
        number, _, values = rest.strip().partition(" ")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise InvalidValueError(
                "a correction",
                got=f"'{rest[:40]}'",
                expected="the number of a step and its outcome",
                fix="for example c 2 0.48",
            )
        entry = parse_entry(self.task, values)
        if self._sure(entry, int(number)):
            record = self.session.correct(int(number), entry)
            print_text(f"corrected: {self._in_words(record)}")
            self._show_knowledge()

    def _what_if(self, rest: str) -> None:
        """The designs that would follow. Nothing is stored."""
        if rest:
            entry = parse_entry(self.task, rest)
            design = self.session.foresee(entry)
            outcome = self._listed(self.task.outcomes, entry.y)
            print_text(f"after {outcome}: {self._listed(self.task.designs.quantities, design)}")
            return
        designs, outcomes = self.task.designs.quantities, self.task.outcomes
        columns = (
            {"": RIGHT}
            | {f"if {q}": RIGHT for q in outcomes}
            | {f"then {q}": RIGHT for q in designs}
        )
        rows = [
            [f"{each.level:.0%}", *_cells(each.y, outcomes), *_cells(each.design, designs)]
            for each in self.session.outlook()
        ]
        print_table(columns, rows)

    def _limit(self, rest: str) -> None:
        self.session.limit(parse_limits(self.task, rest))
        self._show_circumstances("stored: designs have no limits but the task's")

    def _set_horizon(self, rest: str) -> None:
        whole = rest.isascii() and rest.isdigit() and len(rest) < 10
        self.session.set_horizon(int(rest) if whole else rest)
        self._show_circumstances(f"stored: {self.session.state.horizon} steps, as trained")

    def _refine(self, rest: str) -> None:
        seconds = (
            parse_numbers("the time to refine", rest, (Quantity("seconds"),))[0]
            if rest
            else REFINING
        )
        print_text(f"refining for about {seconds:g} s ...")
        sys.stdout.flush()
        refined = self.session.refine(seconds)
        print_text(("stored: " if refined.kept else "") + refined.sentence)

    def _sure(self, entry: ParsedEntry, step: int | None) -> bool:
        """Ask back if the outcome is improbable, where there is a posterior to judge by."""
        try:
            tail = self.session.surprise(entry, step=step)
        except ScorebedError:
            return True
        if tail >= IMPROBABLE:
            return True
        values = self._listed(self.task.outcomes, entry.y)
        print_text(
            f"{values} is improbable: less than one outcome in {1 / IMPROBABLE:,.0f} is as far "
            "off, by what is known."
        )
        answer = self._read("Keep it? y keeps it, anything else lets you enter it again: ")
        return answer in ("y", "yes")

    def _read(self, prompt: str) -> str | None:
        """A line without surrounding blanks; None at the end of the input."""
        sys.stdout.write(prompt)
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            sys.stdout.write("\n")  # neither the entry nor its line end is on the screen
        return line.strip() if line else None

    # ---- what is shown

    def _show_design_or_why_not(self) -> str:
        try:
            return self._show_design()
        except ScorebedError as error:
            print_text(_one_line(error))
            self._proposal = None
            return "> "

    def _show_design(self) -> str:
        """The design and what to expect, unless they were shown already; gives the prompt."""
        proposal = self.session.propose()
        if proposal != self._proposal:
            self._proposal = proposal
            print_text(f"\nstep {proposal.step} of {self.session.state.horizon}: measure at")
            width = max(len(q.name) for q in self.task.designs.quantities)
            for quantity, value in zip(self.task.designs.quantities, proposal.design, strict=True):
                print_text(
                    f"    {quantity.name:<{width}}  {quantity.show(value)} {quantity.unit}".rstrip()
                )
            try:
                expected = self.session.predictive(proposal.design)
            except ScorebedError:
                expected = ()
            for m in expected:
                print_text(f"  expected {m.quantity.name}: {_expected(m)}")
            limited = wanted_sentence(proposal, self.task.designs.quantities)
            for sentence in (*((limited,) if limited else ()), *self.session.warnings()):
                print_text(f"  {sentence}")
        return ", ".join(map(_asked, self.task.outcomes)) + " > "

    def _show_knowledge(self) -> None:
        """The posterior table with a drawn marginal each, and the information gained."""
        try:
            posterior, prior = self.session.posterior(), self.session.beliefs.posterior(())
        except ScorebedError as error:
            if str(error) != self._problem:
                print_text(_one_line(error))
            self._problem = str(error)
            return
        low, high = np.quantile(prior.theta[:, posterior.shown], RANGE, axis=0)
        rows = [
            [
                str(m.quantity) + m.nuisance * " (nuisance)",
                f"{m.mean:.4g}",
                f"{m.sd:.3g}",
                *(f"{v:.4g}" for v in _band(m)),
                drawn,
            ]
            for i, m in enumerate(posterior.marginals)
            for drawn in [draw(m, float(low[i]), float(high[i]))]
        ]
        print_table(
            {
                "parameter": LEFT,
                "mean": RIGHT,
                "sd": RIGHT,
                "5%": RIGHT,
                "95%": RIGHT,
                "posterior": LEFT,
            },
            rows,
        )
        if posterior.warning:
            print_text(posterior.warning)
        expected = self.session.expected
        by_the_end = (
            f"; {expected.lower:.2f} to {expected.upper:.2f} expected by the end"
            if expected
            else ""
        )
        print_text(
            f"information {posterior.information:.2f} nats{by_the_end} (effective sample "
            f"{posterior.ess:.0f} of "
            f"{len(posterior.theta)})"
        )
        if scope := self.session.scope():
            print_text(scope)

    def _show_circumstances(self, otherwise: str) -> None:
        """What is different from training by now."""
        print_text("\n".join(self.session.circumstances()) or otherwise)

    def _show_history(self) -> None:
        state = self.session.state
        designs, outcomes = self.task.designs.quantities, self.task.outcomes
        rows = [
            [
                str(record.step),
                "skipped" if record.skipped else "corrected" if record.corrected else "measured",
                *_cells(record.used or record.proposal.design, designs),
                *(_cells(record.y, outcomes) if record.y is not None else ["-"] * len(outcomes)),
                "; ".join(
                    " ".join(note.text.split()) for note in state.notes if note.step == record.step
                ),
            ]
            for record in state.records
        ]
        print_table(
            {"step": RIGHT, "": LEFT}
            | {str(q): RIGHT for q in (*designs, *outcomes)}
            | {"notes": TEXT},
            rows,
        )

    def _in_words(self, record: StepRecord | Change) -> str:
        if isinstance(record, Change):
            return CHANGED[Kind(record.kind)]
        if record.y is None or record.used is None:
            return f"step {record.step} skipped"
        words = f"step {record.step}, {self._listed(self.task.outcomes, record.y)}"
        if record.used != record.proposal.design:
            words += f" at {self._listed(self.task.designs.quantities, record.used)}"
        return words

    def _listed(self, quantities: Sequence[Quantity], values: Vector) -> str:
        return ", ".join(
            f"{q.name} {q.show(v)} {q.unit}".rstrip()
            for q, v in zip(quantities, values, strict=True)
        )

    def _farewell(self) -> str:
        return f"saved in {self.session.path}; go on with: {self._resume}"


def draw(marginal: MarginalSummary, low: float, high: float) -> str:
    """A box plot in one line between `low` and `high`: 90% as dashes, 50% as equals signs, the
    median as a bar.
    """
    span = (high - low) or 1.0
    at = [round(min(max((q - low) / span, 0.0), 1.0) * (WIDTH - 1)) for q in marginal.quantiles]
    line = ["."] * WIDTH
    for start, stop, mark in ((at[0], at[-1], "-"), (at[1], at[-2], "="), (at[2], at[2], "|")):
        line[start : stop + 1] = mark * (stop + 1 - start)
    return "".join(line)


def _asked(quantity: Quantity) -> str:
    """What is to be entered, with the answers that there are."""
    return f"{quantity} ({' or '.join(quantity.labels)})" if quantity.labels else str(quantity)


def _band(marginal: MarginalSummary) -> tuple[float, float]:
    """The outermost quantiles: 5% and 95%."""
    return marginal.quantiles[QUANTILES.index(0.05)], marginal.quantiles[QUANTILES.index(0.95)]


def _cells(values: Vector, quantities: Sequence[Quantity]) -> list[str]:
    return [q.show(value) for q, value in zip(quantities, values, strict=True)]


def _expected(marginal: MarginalSummary) -> str:
    """What to expect: the probability of each answer, or a range."""
    if marginal.shares:
        return ", ".join(f"{label} {share:.0%}" for label, share in marginal.shares)
    low, high = _band(marginal)
    return f"{low:.4g} to {high:.4g} {marginal.quantity.unit}".rstrip() + " (90%)"


def _one_line(error: ScorebedError) -> str:
    """An error as one printable line, whatever was typed."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(str(error).split()))
