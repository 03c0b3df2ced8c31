"""All parts, in the order of the page."""

from chaos.training_kills import TRAINING

PARTS = {part.name: part for part in (TRAINING,)}
