"""An association: fast and slow clients at every edge.

hiflash run --plugin examples/plugins/association.py --federation.association mixed_speeds
"""

import numpy as np

import hiflash


def mixed_speeds(config: hiflash.Config, scene) -> list[list[int]]:
    """Return clusters that the clients join in turn, the fastest first."""
    edges = config.federation.edges
    order = np.argsort(scene.compute_s + scene.best_send_s(), kind="stable")
    return [sorted(order[edge::edges].tolist()) for edge in range(edges)]


hiflash.register(
    "association",
    hiflash.Part("mixed_speeds", "the clients join the edges in turn, the fastest first", mixed_speeds),
)
