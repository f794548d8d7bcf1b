"""A deterministic network: services and agents in one process, on virtual time, with faults by seed."""
