"""The deployed system on a wall clock: services, agents, journal, transports and identities.

May import the vocabulary, core, store, agents, methods, config, data, train, execute and sim.
"""
