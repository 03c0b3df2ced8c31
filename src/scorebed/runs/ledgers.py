"""What a run spends, in four books: training, selection, evaluation and references.

Training is what a budget limits, repeat by repeat: a repeat is charged in full for what it shares
with others, since on its own it would have had to pay for it. `training` has what was really spent,
so that what is shared is in it once.

    nle              training               scores, densities, policies
    nle_selection    selection              estimates while training, the choice among restarts
    nle_evaluation   evaluation             the reported bounds, those of references among them
    nle_references   references             training and watching static designs to compare with
"""

from collections.abc import Iterable

from scorebed.nle import Ledger


class RunLedgers:
    """The books of a run of several repeats, each with a budget of its own; 0 for no limit."""

    def __init__(self, budget: int, repeats: int):
        self.training, self.selection = Ledger(), Ledger()
        self.evaluation, self.references = Ledger(), Ledger()
        self._repeats = [Ledger(budget or None) for _ in range(repeats)]

    def train(self, entry: str, nle: int, repeats: Iterable[int] | None = None) -> None:
        """Charge training to some repeats, to all of them if left out; refused if it does not fit
        the budget of one.
        """
        for repeat in range(len(self._repeats)) if repeats is None else repeats:
            self._repeats[repeat].charge(entry, nle)
        self.training.charge(entry, nle)

    def settle(self, entry: str, nle: int, repeat: int) -> None:
        """What training of one repeat came to."""
        self._repeats[repeat].settle(entry, nle)
        self.training.settle(entry, nle)

    def settle_shared(self, entry: str, nle: int) -> None:
        """What training came to in every repeat that was charged for it."""
        for ledger in (*self._repeats, self.training):
            if entry in ledger.totals:
                ledger.settle(entry, nle)

    @property
    def per_repeat(self) -> list[int]:
        """NLE of training of every repeat, in full."""
        return [each.spent for each in self._repeats]
