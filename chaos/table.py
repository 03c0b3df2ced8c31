"""All parts, in the order of the page."""

from chaos.bench import DOUBLE, MAGNITUDES, STRANGERS_AT_THE_DOOR
from chaos.commands import COMMANDS
from chaos.damage import DAMAGE
from chaos.full_disk import FULL_DISK
from chaos.races import RACES
from chaos.server_kills import SERVER
from chaos.training_kills import TRAINING

PARTS = {
    part.name: part
    for part in (
        TRAINING,
        SERVER,
        DAMAGE,
        FULL_DISK,
        RACES,
        DOUBLE,
        STRANGERS_AT_THE_DOOR,
        COMMANDS,
        MAGNITUDES,
    )
}
