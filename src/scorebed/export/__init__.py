"""A policy for a bench computer that has neither this library nor the model.

`programs` turns a policy into functions of plain arrays, `jaxpr_to_onnx` translates them to ONNX,
`folder` writes everything with a manifest, and `policy` and `client` are the scripts that are
copied along and run there."""
