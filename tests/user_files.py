"""The example tasks, and variants of them made by small replacements."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples" / "tasks"
FILES = {
    "SamplingTimes": "sampling_times.py",
    "SensorPlacement": "sensor_placement.py",
    "ControlledSystem": "controlled_system.py",
    "Dosing": "dosing.py",
}


def source(name: str) -> str:
    return (EXAMPLES / FILES[name]).read_text()


def variant(folder: Path, name: str, *replacements: tuple[str, str], more: str = "") -> str:
    """FILE.py:NAME of an example with text replaced, and more of it at the end of the class."""
    text = source(name)
    for old, new in replacements:
        assert old in text, f"'{old}' is not in {FILES[name]}"
        text = text.replace(old, new)
    path = folder / "my_task.py"
    path.write_text(text + more)
    return f"{path}:{name}"
