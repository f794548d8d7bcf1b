"""Wall time: a federation over a network, and who takes part in it.

May import the vocabulary, core, store, agents, methods, config, data, train, execute and sim.
"""
