"""Learning to control staleness: the environment, the agent's training, its surrogate.

Importing it registers its environments, so Gymnasium finds them by its name (decision 51):
`gymnasium.make("hiflash:hiflash/Staleness-v1")`.
May import everything above it: sim, config, store, agents and what they import.
"""

import gymnasium

# Entry points are strings: registering must not import torch and the simulator.
gymnasium.register("hiflash/Staleness-v0", entry_point="hiflash.control.environment:StalenessEnv")
gymnasium.register("hiflash/Staleness-v1", entry_point="hiflash.control.shaped:ShapedStalenessEnv")
