"""The figures of the paper, re-run, by the names that `scorebed paper` takes.

Each is a `PaperItem` in a file of its own; its title and settings are a table of `items.toml`, its
description is in `published.toml`.
"""

from scorebed.paper.figures.eig_bias import EIGAgainstBias
from scorebed.paper.figures.eig_nle import EIGAgainstNLE
from scorebed.paper.figures.gradient_mse import GradientMSE
from scorebed.paper.figures.jacobian import JacobianConditioning
from scorebed.paper.figures.stability import Stability
from scorebed.paper.figures.training_curves import TrainingCurves
from scorebed.paper.item import PaperItem

FIGURES: dict[str, PaperItem] = {
    item.name: item
    for item in (
        EIGAgainstNLE(),
        TrainingCurves(),
        GradientMSE(),
        EIGAgainstBias(),
        Stability(),
        JacobianConditioning(),
    )
}
