"""The ledger: equal to the accountant over long histories, never over the budget, never under-counting."""

import json

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.errors import BudgetError, ProtocolError
from hiflash.privacy.accounting import Mechanism
from hiflash.privacy.ledger import MODELS, PARTICIPATION, Budget, PrivacyLedger
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint

DELTA = 1e-5


def make(limit=None, clients=6, noise=1.0):
    ledger = PrivacyLedger(Budget(limit, DELTA), clients)
    ledger.declare("edge round", Mechanism(noise))
    return ledger


def test_a_long_history_equals_the_accountant():
    ledger = make(noise=20.0)
    ledger.declare("histogram", Mechanism(3.0, "laplace"))
    accountants = [RdpAccountant() for _ in range(6)]
    stream = np.random.default_rng(1)
    for step in range(400):
        clients = np.flatnonzero(stream.random(6) < 0.5).tolist()
        name = "histogram" if step % 50 == 0 else "edge round"
        event = dp_accounting.LaplaceDpEvent(3.0) if step % 50 == 0 else dp_accounting.GaussianDpEvent(20.0)
        ledger.charge({name: clients})
        for client in clients:
            accountants[client].compose(event)
    for client, accountant in enumerate(accountants):
        assert ledger.epsilon(client) == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-6)


def test_sampling_counts_for_those_who_see_models_only():
    ledger = PrivacyLedger(Budget(None, DELTA), 3)
    ledger.declare("sampled", Mechanism(1.0, sampling=0.1), (MODELS,))
    ledger.declare("joined", Mechanism(1.0), (PARTICIPATION,))
    for joined in ([0], [], [0, 2]):
        ledger.charge({"sampled": [0, 1, 2], "joined": joined})
    sampled, alone = RdpAccountant(), RdpAccountant()
    sampled.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0)), 3)
    alone.compose(dp_accounting.GaussianDpEvent(1.0), 2)
    for client in range(3):
        assert ledger.epsilon(client) == pytest.approx(sampled.get_epsilon(DELTA), abs=1e-6)
    assert ledger.epsilon(0, PARTICIPATION) == pytest.approx(alone.get_epsilon(DELTA), abs=1e-6)
    assert ledger.epsilon(1, PARTICIPATION) == 0
    report = ledger.report()
    assert report["epsilon"] == ledger.epsilon(0)
    assert report["epsilon_participation"] == ledger.epsilon(0, PARTICIPATION)


def test_a_budget_is_used_up_but_never_exceeded():
    ledger = make(limit=8.0)
    paid = 0
    while ledger.left("edge round", [2])[0]:
        ledger.charge({"edge round": [2]})
        paid += 1
    assert paid == 2  # epsilons of 1, 2 and 3 rounds at noise 1: 4.7, 7.1, 9.0
    before = ledger.epsilon(2)
    assert before <= 8.0
    with pytest.raises(BudgetError, match=r"client 2 has spent epsilon 7\.\d+ of 8 .* raise dp.epsilon"):
        ledger.charge({"edge round": [0, 2]})
    assert ledger.epsilon(0) == 0  # all or none
    assert ledger.epsilon(2) == before
    over = make()
    over.charge({"edge round": [2]}, 3)
    assert over.epsilon(2) > 8.0


def test_other_charges_leave_less_for_rounds():
    ledger = make(limit=8.0)
    ledger.declare("histogram", Mechanism(0.3, "laplace"))  # epsilon 3.33 by itself
    ledger.charge({"histogram": [1]})
    assert ledger.left("edge round", [0, 1]).tolist() == [2, 1]


def test_two_charges_at_once_count_together():
    ledger = make(limit=8.0)
    ledger.declare("another", Mechanism(1.0))
    with pytest.raises(BudgetError):
        ledger.charge({"edge round": [0], "another": [0]}, 2)
    assert ledger.left("edge round", [0]).tolist() == [2]


def test_clients_with_one_history_are_one_group():
    ledger = make(clients=100_000)
    ledger.charge({"edge round": range(50_000)})
    groups = ledger.report()["groups"]
    assert [(group["clients"], group["charges"]) for group in groups] == [
        (50_000, {"edge round": 0}),
        (50_000, {"edge round": 1}),
    ]
    json.dumps(ledger.report())


def test_misuse_is_named():
    ledger = make()
    with pytest.raises(ProtocolError, match="no entry other"):
        ledger.charge({"other": [0]})
    with pytest.raises(ProtocolError, match="use another name"):
        ledger.declare("edge round", Mechanism(2.0))
    with pytest.raises(ProtocolError, match="use `times`"):
        ledger.charge({"edge round": [0, 0]})
    with pytest.raises(ProtocolError, match="counts for 5 clients"):
        make(clients=5).restore(ledger.snapshot())


def test_a_ledger_with_other_noise_cannot_go_on():
    with pytest.raises(ProtocolError, match="cannot take"):
        make(noise=2.0).restore(make(noise=1.0).snapshot())


CLIENTS = st.lists(st.integers(0, 5), unique=True, max_size=6)
ACTIONS = st.lists(st.one_of(CLIENTS, st.sampled_from(["save", "crash"])), max_size=40)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.sampled_from([None, 5.0, 12.0]))
def test_no_interleaving_of_charges_checkpoints_and_crashes_under_counts(tmp_path_factory, actions, limit):
    """Whoever charges and saves before it opens may crash at any time.

    What was opened is counted here, apart from the ledger. A crash goes back to the last saved ledger; the
    sums that were opened stay opened.
    """
    path = tmp_path_factory.mktemp("ledger") / "ledger.safetensors"
    ledger, opened = make(limit), [0] * 6
    save_checkpoint(path, ledger.snapshot())
    for action in actions:
        if action == "crash":
            ledger = make(limit)
            ledger.restore(load_checkpoint(path))
        elif action == "save":
            save_checkpoint(path, ledger.snapshot())
        else:
            try:
                ledger.charge({"edge round": action})
            except BudgetError:
                continue
            save_checkpoint(path, ledger.snapshot())
            for client in action:
                opened[client] += 1
        true = make()
        for client in range(6):
            assert ledger.counts["edge round"][client] >= opened[client]
            if opened[client] and limit is not None:
                true.counts["edge round"][client] = opened[client]
                assert true.epsilon(client) <= limit
