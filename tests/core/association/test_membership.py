"""A client belongs to one edge, and its cluster changes between leases only."""

import numpy as np
import pytest

from hiflash.core.association.membership import ABSENT, Membership, Transfer, homes
from hiflash.errors import ProtocolError


def membership(*home: int) -> Membership:
    return Membership(np.array(home), np.array(home))


def test_between_leases_a_client_changes_clusters_at_once():
    members = membership(0, 0, 1)
    members.assign(1, 1)
    assert members.settle() == [Transfer(1, 0, enters=False), Transfer(1, 1, enters=True)]
    assert members.settle() == []
    assert members.clusters(2) == [[0], [1, 2]]


def test_a_client_stays_until_the_lease_ends_and_waits_for_that_of_its_new_edge():
    members = membership(0, 0, 1)
    members.granted(0)
    members.granted(1)
    members.assign(1, 1)
    assert members.settle() == []  # it still trains for edge 0
    assert (members.home[1], members.place[1]) == (1, 0)
    members.returned(0)
    assert members.settle() == [Transfer(1, 0, enters=False)]
    assert members.place[1] == ABSENT  # on its way
    members.granted(0)
    members.returned(1)
    assert members.settle() == [Transfer(1, 1, enters=True)]


def test_a_client_that_comes_back_before_it_could_leave_has_not_moved():
    members = membership(0, 1)
    members.granted(0)
    members.assign(0, 1)
    members.assign(0, 0)
    members.returned(0)
    assert members.settle() == []
    assert not members.unsettled


def test_a_client_that_leaves_finishes_its_lease_and_may_join_another_edge():
    members = membership(0, 1)
    members.granted(0)
    members.assign(0, ABSENT)
    assert members.settle() == []
    assert members.absent().tolist() == [0]
    members.assign(0, 1)
    members.returned(0)
    assert members.settle() == [Transfer(0, 0, enters=False), Transfer(0, 1, enters=True)]


def test_an_edge_with_a_lease_gets_no_other():
    members = membership(0)
    members.granted(0)
    with pytest.raises(ProtocolError, match="edge 0 has a lease already"):
        members.granted(0)


def test_a_snapshot_does_not_change_with_what_follows():
    members = membership(0, 0, 1)
    members.granted(0)
    members.assign(0, 1)
    saved = members.snapshot()
    members.returned(0)
    assert len(members.settle()) == 2
    other = membership(0, 0, 1)
    other.restore(saved)
    assert (other.home.tolist(), other.place.tolist()) == ([1, 0, 1], [0, 0, 1])
    other.returned(0)
    assert len(other.settle()) == 2


def test_homes_are_the_clusters_seen_from_the_clients():
    home = homes([[2], [], [0, 3]], 4)
    assert home.tolist() == [2, ABSENT, 0, 2]
    assert Membership(home, home).clusters(3) == [[2], [], [0, 3]]
