"""Training runs on disk: their configuration, folder, metrics, checkpoints and saved arrays.

The only layer that knows of files; nothing above it does. A file survives a crash at any moment
either as it was or as it should be, and loading one runs no code: safetensors, strict JSON and TOML
only."""
