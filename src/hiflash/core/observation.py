"""What a learned threshold policy sees of the cloud: five numbers per edge."""

from __future__ import annotations

import numpy as np

from hiflash.core.staleness import CloudView
from hiflash.messages import Weights

__all__ = ["FEATURES", "observe"]

FEATURES = 5


def observe(view: CloudView, edge: int | None) -> Weights:
    """Return `[C_comp, C_comm, T_train, T_rem, checking_in]`, each of one number per edge."""
    state = np.zeros((FEATURES, len(view.examples)), np.float32)
    for m, costs in view.costs.items():
        state[:3, m] = costs.compute_s, costs.send_s, costs.duration_s
    for lease in view.leases:
        state[3, lease.edge] = lease.eta - view.now
    if edge is not None:
        state[4, edge] = 1
    return state.reshape(-1)
