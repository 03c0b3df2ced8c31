"""The sizes of a run, by preset and task."""
