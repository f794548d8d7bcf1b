"""The state that a learned policy sees: five numbers for every edge (paper, section 5.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hiflash.core.thresholds.policy import CloudView

__all__ = ["CHECKING_IN", "FEATURES", "LIMIT", "REMAINING", "observe", "waits_for_nobody"]

FEATURES = 5
DURATION, REMAINING, CHECKING_IN = 2, 3, 4  # where T_train, T_rem and checking_in stand among them
LIMIT = 10.0  # nothing is shown as larger, so that one very slow edge cannot drown all others
SLOTS = 10.0  # a usual lease lasts about so many slots, which makes times as large as costs


def observe(view: CloudView, edge: int | None) -> npt.NDArray[np.float32]:
    """Return `[C_comp, C_comm, T_train, T_rem, checking_in]`, each of length M, as one vector.

    Costs are in units of a mean lease, times in tens of slots. An edge that has not declared its costs shows
    zeros. The remaining time is zero for an edge that does not run, and at least a slot for one that does,
    however late it is.
    """
    units = len(view.examples)
    state = [0.0] * (FEATURES * units)  # an array takes single numbers several times as slowly
    compute_unit_s, send_unit_s = view.cost_unit_s
    now, slot_s = view.now, view.slot_s
    time_unit_s = SLOTS * slot_s
    for m, (compute_s, send_s, down_s, train_s, up_s) in view.costs.items():
        state[m] = compute_s / compute_unit_s
        state[units + m] = send_s / send_unit_s
        state[2 * units + m] = (down_s + train_s + up_s) / time_unit_s
    for lease in view.leases:
        state[3 * units + lease.edge] = max(lease.eta - now, slot_s) / time_unit_s
    if edge is not None:
        state[4 * units + edge] = 1.0
    seen = np.array(state, np.float32)
    return seen if max(state) <= LIMIT else np.minimum(seen, np.float32(LIMIT))


def waits_for_nobody(state: npt.NDArray[np.float32]) -> bool:
    """Return whether to refuse the edge that checks in is to wait for nobody.

    No edge runs, and of those that have declared their costs more than half take as long or longer.
    """
    features = state.reshape(FEATURES, -1)
    if features[REMAINING].any():
        return False
    durations = features[DURATION]
    own = float(durations @ features[CHECKING_IN])
    declared = np.count_nonzero(durations)
    return bool(2 * np.count_nonzero(durations >= own) > declared)
