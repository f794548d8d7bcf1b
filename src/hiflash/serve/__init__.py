"""The deployed system on a wall clock: services, agents, journal, transports and identities.

May import the vocabulary and every package that the simulator imports, and the simulator's books.
"""
