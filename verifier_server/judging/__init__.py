"""Pure functions that turn what came out of a jail into a verdict. No I/O, no protobuf, no processes."""
