"""The state that a learned policy sees: five numbers for every edge (paper, section 5.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hiflash.core.staleness import CloudView

__all__ = ["FEATURES", "LIMIT", "observe"]

FEATURES = 5
LIMIT = 10.0  # nothing is shown as larger, so that one very slow edge cannot drown all others
SLOTS = 10.0  # a usual lease lasts about so many slots, which makes times as large as costs


def observe(view: CloudView, edge: int | None) -> npt.NDArray[np.float32]:
    """Return `[C_comp, C_comm, T_train, T_rem, checking_in]`, each of length M, as one vector.

    Costs are in units of a mean lease, times in tens of slots. An edge that has not declared its costs shows
    zeros. The remaining time is zero for an edge that does not run, and at least a slot for one that does,
    however late it is.
    """
    units = len(view.examples)
    # Lists first: an array takes single numbers several times as slowly.
    compute, send, train, remaining, checking_in = ([0.0] * units for _ in range(FEATURES))
    compute_unit_s, send_unit_s = view.cost_unit_s
    time_unit_s = SLOTS * view.slot_s
    for m, costs in view.costs.items():
        compute[m] = costs.compute_s / compute_unit_s
        send[m] = costs.send_s / send_unit_s
        train[m] = costs.duration_s / time_unit_s
    for lease in view.leases:
        remaining[lease.edge] = max(lease.eta - view.now, view.slot_s) / time_unit_s
    if edge is not None:
        checking_in[edge] = 1.0
    state = np.array([*compute, *send, *train, *remaining, *checking_in], np.float32)
    return np.minimum(state, LIMIT, out=state)
