"""All parts, in the order of the page."""

from chaos.bench import DOUBLE, MAGNITUDES, STRANGERS_AT_THE_DOOR
from chaos.commands import COMMANDS
from chaos.damage import DAMAGE
from chaos.training_kills import TRAINING

PARTS = {
    part.name: part
    for part in (TRAINING, DAMAGE, DOUBLE, STRANGERS_AT_THE_DOOR, COMMANDS, MAGNITUDES)
}
