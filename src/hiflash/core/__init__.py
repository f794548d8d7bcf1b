"""The algorithm, with no I/O: state machines and pure functions on numpy arrays."""
