"""The state that a learned policy sees: five numbers for every edge (paper, section 5.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hiflash.core.thresholds.policy import CloudView

__all__ = ["CHECKING_IN", "DURATION", "FEATURES", "LIMIT", "REMAINING", "observe", "refusal_would_stall"]

FEATURES = 5
DURATION, REMAINING, CHECKING_IN = 2, 3, 4  # positions of T_train, T_rem and checking_in
LIMIT = 10.0  # upper limit of all values: one very slow edge must not dominate the others
SLOTS = 10.0  # usual length of a lease in slots: it makes times about as large as costs


def observe(view: CloudView, edge: int | None) -> npt.NDArray[np.float32]:
    """Return `[C_comp, C_comm, T_train, T_rem, checking_in]`, each of length M, as one vector.

    Costs are in units of a mean lease, times in tens of slots. An edge that has not declared its costs shows
    zeros. An idle edge has a remaining time of zero. A running edge has at least one slot left, even if it is
    late.
    """
    units = len(view.examples)
    state = [0.0] * (FEATURES * units)  # a list: setting single numbers in an array is far slower
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


def refusal_would_stall(state: npt.NDArray[np.float32]) -> bool:
    """Return whether refusing the edge that checks in would stall an idle cloud.

    It would if no edge runs, and more than half of the edges with declared costs take at least as long as
    this edge: there is no faster edge worth waiting for.
    """
    features = state.reshape(FEATURES, -1)
    if features[REMAINING].any():
        return False
    durations = features[DURATION]
    own = float(durations @ features[CHECKING_IN])
    declared = np.count_nonzero(durations)
    return bool(2 * np.count_nonzero(durations >= own) > declared)
