"""The policy for a bench computer: what a live experiment needs of a run, without this library.

`programs` makes the three functions of a policy and its noise, `onnx` and `protobuf` write them as
ONNX, `folder` puts them into a folder with a manifest, and `policy` and `client` are the scripts
that go with it and run there."""
