"""Learning to control staleness: the environment, the agent's training, its surrogate.

May import everything above it: sim, config, store, agents and what they import.
"""
