"""What information is worth: the options of `live` and `serve` by which they say when to stop."""

from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._numbers import Positive

PricePerNat = Annotated[
    Positive | None,
    Parameter(
        help="What a nat is worth, in the unit of the task's cost: says when further steps cost "
        "more than they tell."
    ),
]
StopBelow = Annotated[
    Positive | None,
    Parameter(
        help="Nats: says when neither the next step nor all the rest are expected to tell as much."
    ),
]
