"""The dialogue of `scorebed live`: lines in, lines out; the same on a terminal and through a
pipe.
"""

import io
import sys
from collections.abc import Sequence

import numpy as np

from scorebed.cli._output import LEFT, RIGHT, TEXT, print_progress, print_table, print_text
from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.session.events import Change, Kind, ProposedDesign, StepRecord, Vector
from scorebed.session.messages import wanted_sentence
from scorebed.session.posterior import IMPROBABLE, QUANTILES, MarginalSummary
from scorebed.session.session import Session
from scorebed.session.side_by_side import check_count
from scorebed.session.validation import ParsedEntry, parse_entry, parse_limits, parse_numbers
from scorebed.tasks.spaces import Quantity

WIDTH = 41  # columns of a drawn marginal
RANGE = (0.005, 0.995)  # of the prior, which a drawn marginal spans
REFINING = 30.0  # seconds

HELP = """\
numbers        the outcome, with blanks between numbers:  0.52  or  1.5 -2e-3
numbers @ xi   the outcome, and the design used if it was not the one proposed:  0.52 @ 1.25
u              undo: take the last step or change back
2: numbers     of several designs at once, the outcome of design 2
s, or s 2      skip this step, or that design: the trial failed (only where steps are independent)
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

    def __init__(self, session: Session, *, resume: str, at_once: int = 1):
        self.session, self.task, self._resume = session, session.task, resume
        self._at_once = check_count(session.task, at_once)
        self._pending: tuple[ProposedDesign, ...] = ()  # as shown
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
            if sys.stdin.isatty():  # a person, who would wait for it at the first entry
                print_progress("compiling, so that no entry waits later ...")
                self.session.warm(lambda part: print_progress(f"  {part}"))
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
            self._pending, prompt = (), "> "
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
        elif command == "s":
            number = None if not rest else self._numbered(f"{rest.strip()}:")[0].id
            step = self.session.state.step if number is None else None
            skipped = self.session.skip(step=step, proposal=number)
            print_text(f"stored: {self._in_words(skipped)}")
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
        if not self._pending:
            why = (
                "f, u or q: no step is left"
                if self.session.state.complete
                else "a command, while there is no design"
            )
            raise ConflictError("an entry", got=f"'{line[:40]}'", expected=why, fix="? for help.")
        proposal, values = self._numbered(line)
        entry = parse_entry(self.task, values)
        at = entry if entry.xi is not None else entry._replace(xi=proposal.design)
        if self._sure(at, None):
            record = self.session.observe(entry, proposal=proposal.id)
            print_text(f"stored: {self._in_words(record)}")
            self._show_knowledge()

    def _numbered(self, line: str) -> tuple[ProposedDesign, str]:
        """The design that an entry is about, and the entry: of several, its number stands before a
        colon.
        """
        number, colon, values = line.partition(":")
        if not colon and len(self._pending) == 1:
            return self._pending[0], line
        found = next((p for p in self._pending if str(p.step) == number.strip()), None)
        if not colon or found is None:
            raise InvalidValueError(
                "an entry",
                got=f"'{line[:40]}'",
                expected="the number of a design that is shown, a colon, and its outcome",
                fix=f"for example {self._pending[0].step}: 0.52"
                if self._pending
                else "? for help.",
            )
        return found, values.strip()

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
            self._pending = ()
            return "> "

    def _show_design(self) -> str:
        """The designs and what to expect, unless they were shown already; gives the prompt."""
        shown, self._pending = self._pending, self.session.ask(self._at_once)
        several = len(self._pending) > 1
        new = [proposal for proposal in self._pending if proposal not in shown]
        for proposal in new:
            self._show_proposal(proposal, "design" if several else "step")
        if several and shown and self._pending != shown:
            waiting = ", ".join(str(each.step) for each in self._pending)
            print_text(f"designs that wait for an outcome: {waiting}")
        if new:
            for sentence in self.session.warnings():
                print_text(f"  {sentence}")
        asked = ", ".join(map(_asked, self.task.outcomes))
        return f"design: {asked} > " if several else f"{asked} > "

    def _show_proposal(self, proposal: ProposedDesign, kind: str) -> None:
        print_text(f"\n{kind} {proposal.step} of {self.session.state.horizon}: measure at")
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
        if limited := wanted_sentence(proposal, self.task.designs.quantities):
            print_text(f"  {limited}")

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
        if advice := self.session.stopping_sentence():
            print_text(advice)

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
