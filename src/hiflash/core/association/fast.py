"""Algorithm 3 for many clients: the clusters of `associate_reference`, found by looking at few pairs.

An edge needs the client of lowest cost, and all its costs change when its cluster does. Three facts give
cheap lower bounds that rule out most clients. `Problem.costs` evaluates the others, so the final comparisons
use the numbers of the reference and lead to the same ties and clusters.

1. JS is convex in the mixture p, and its slope is `g = log2(2t / (t + q)) / 2`. So for any t > 0
   `JS(p, q) >= A(t) + g(t) . p` with `A = sum(q log2(2q / (t + q))) / 2`: one matrix product bounds all
   clients of many edges from below. t is the cluster with a mean client added.
2. Each edge remembers a pool, the `POOL` clients with the lowest bounds, and the lowest bound outside it.
   When the cluster grows, the bounds outside (with the old t) fall by at most an amount computed from the
   largest `g . p`. If the best client of the pool costs less than the lowered bound, no other client wins.
3. The gap between JS and its tangent is a sum of one term per class. No term is negative, and each is at
   least `kappa (p - t)^2` up to a bounded p. In small clusters, two more products (of squares and of
   deviations) rule out most remaining clients. The exact terms, class by class, rule out most of the rest.

Bounds are in single precision, lowered by more than their rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hiflash.core.association.greedy import Problem, choose_edges, place_rest
from hiflash.core.association.strategies import Clusters

__all__ = ["associate"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

POOL = 1024
FIRST = 8  # clients of lowest bound to evaluate first: the other bounds are compared with their best cost
CAP = 5.0  # fact 3 caps a client's share of a class at CAP times the target's share
YOUNG = 8  # mean clients; in a larger cluster the gap of the tangent is small
FEW = 256  # up to this many clients are evaluated without closer bounds
EDGES, ROWS = 48, 512  # edges per product and rows per evaluation that fit in the caches
SINGLE = 2.0**-24  # relative rounding error of single precision
TINY = np.float32(1e-30)  # 0 log 0 = 0


def associate(
    problem: Problem, stream: np.random.Generator, progress: Callable[[int], None] = lambda placed: None
) -> Clusters:
    """Return the clusters of Algorithm 3; `progress` is told how many clients are placed."""
    search = _Search(problem)
    clusters, left = search.clusters, len(problem.counts)
    while left:
        before = left
        empty = [edge for edge in search.open_edges if not clusters[edge]]
        for edge in empty:
            client = search.nearest(edge)
            if client is not None:
                search.place(client, edge)
                left -= 1
        took = set(empty)
        wishes: dict[int, list[int]] = {}
        for edge, client in search.cheapest([edge for edge in search.open_edges if edge not in took]):
            wishes.setdefault(client, []).append(edge)
        for client, edge in choose_edges(wishes, stream):
            search.place(client, edge)
        left -= len(wishes)
        if left == before:
            place_rest(problem, clusters, np.flatnonzero(search.alive).tolist())
            left = 0
        progress(len(problem.counts) - left)
    return [sorted(cluster) for cluster in clusters]


class _Search:
    """The state of the sweeps, and every edge's pool."""

    def __init__(self, problem: Problem) -> None:
        edges, clients = problem.latency_ms.shape
        classes = problem.counts.shape[1]
        self.problem = problem
        self.clusters: Clusters = [[] for _ in range(edges)]
        self.open_edges = list(range(edges))
        self.alive = np.ones(clients, np.bool_)
        self.held = np.zeros((edges, classes), np.int64)
        self.size = np.zeros(edges)
        self.sizes = problem.sizes.astype(np.float64)
        self.mean_size = max(float(self.sizes.mean()), 1.0)
        self.features = problem.counts.astype(np.float32)
        self.rounding = 8 * SINGLE * (problem.weight + float(np.abs(problem.latency_ms).max()))
        self.js_error = SINGLE * (classes + 16) * 4 * (math.log2(classes) + 1)
        shares = self.sizes[:, None] * problem.target
        self.deviations = (np.minimum(problem.counts, CAP * shares) - shares).astype(np.float32)
        held = self.sizes[self.sizes > 0]
        self.extremes = (float(held.min()), float(held.max())) if len(held) else (1.0, 1.0)
        self.clients = np.arange(clients)
        self._compact()
        self._forget_pools()

    def place(self, client: int, edge: int) -> None:
        """Put a client into a cluster."""
        self.clusters[edge].append(client)
        self.alive[client] = False
        self.held[edge] += self.problem.counts[client]
        self.size[edge] += self.sizes[client]
        if len(self.clusters[edge]) == self.problem.capacity:
            self.open_edges.remove(edge)

    def nearest(self, edge: int) -> int | None:
        """Return the unassociated client with the lowest latency, or close an edge that reaches none."""
        latency = np.where(self.alive & self.problem.reach(edge), self.problem.latency_ms[edge], np.inf)
        client = int(latency.argmin())
        if latency[client] < np.inf:
            return client
        self.open_edges.remove(edge)
        return None

    def cheapest(self, edges: list[int]) -> list[tuple[int, int]]:
        """Return (edge, client of lowest cost) of every edge that still reaches one."""
        left = int(self.alive.sum())
        if not edges or not left:
            return []
        if left < self.ids.shape[1] // 2:
            self._forget_pools()
        known = [edge for edge in edges if self.pooled[edge]]
        found = dict(self._from_pools(np.array(known))) if known else {}
        others = [edge for edge in edges if edge not in found]
        if others:
            if left < 0.8 * len(self.clients):
                self._compact()
            for start in range(0, len(others), EDGES):
                found.update(self._from_all(np.array(others[start : start + EDGES])))
        for edge in edges:
            if edge not in found:
                self.open_edges.remove(edge)
        return [(edge, found[edge]) for edge in edges if edge in found]

    def _compact(self) -> None:
        """Copy the data of clients not placed yet into contiguous arrays of single precision."""
        self.clients = self.clients[self.alive[self.clients]]
        self.columns = np.ascontiguousarray(self.features[self.clients].T)
        self.off_columns = np.ascontiguousarray(self.deviations[self.clients].T)
        self.square_columns = self.off_columns**2
        self.near_sizes = self.sizes[self.clients].astype(np.float32)
        edges = len(self.held)
        self.latencies = np.empty((edges, len(self.clients)), np.float32)
        for edge in range(edges):
            self.latencies[edge] = self.problem.latency_ms[edge].take(self.clients)
            if self.problem.reachable is not None:
                self.latencies[edge][~self.problem.reachable[edge].take(self.clients)] = np.inf

    def _forget_pools(self) -> None:
        edges, classes = self.held.shape
        width = min(POOL, int(self.alive.sum()))
        self.pooled = np.zeros(edges, np.bool_)
        self.ids = np.zeros((edges, width), np.int64)
        self.latency = np.zeros((edges, width))
        self.beyond = np.zeros(edges)  # no cost outside the pool was below this when the pool was made
        self.slope_then = np.zeros((edges, classes))
        self.level_then, self.size_then, self.steepest = np.zeros((3, edges))

    def _tangents(self, edges: Counts) -> tuple[Floats, Floats, Floats, Floats]:
        """Return, for every edge, g, A, g . held, and the rounding error of a bound made of them."""
        q, held = self.problem.target, self.held[edges]
        t = (held + self.mean_size * q) / (self.size[edges] + self.mean_size)[:, None]
        wanted = q > 0  # for other classes the term of JS is p / 2, with slope 1/2 at every t
        slope = np.full_like(t, 0.5)
        slope[:, wanted] = np.log2(2 * t[:, wanted] / (t[:, wanted] + q[wanted])) / 2
        constant = (q[wanted] * np.log2(2 * q[wanted] / (t[:, wanted] + q[wanted]))).sum(axis=1) / 2
        error = self.problem.weight * SINGLE * 2 * (len(q) + 8) * np.abs(slope).max(axis=1)
        return slope, constant, (slope * held).sum(axis=1), error + self.rounding

    def _from_pools(self, edges: Counts) -> list[tuple[int, int]]:
        """Return (edge, cheapest client) where the pool proves that no client outside is cheaper."""
        weight, size = self.problem.weight, self.size[edges]
        slope, constant, level, error = self._tangents(edges)
        ids = self.ids[edges]
        latency = np.where(self.alive[ids], self.latency[edges], np.inf)
        products = np.empty(ids.shape, np.float32)
        for row, (own, direction) in enumerate(zip(ids, slope.astype(np.float32), strict=True)):
            np.dot(self.features.take(own, axis=0), direction, out=products[row])
        bounds = (products + level[:, None]) / np.maximum(self.sizes[ids] + size[:, None], 1)
        bounds = latency + weight * (constant[:, None] + bounds) - error[:, None]
        # The most that bounds outside may have fallen since the pool was made.
        risen = (self.slope_then[edges] * self.held[edges]).sum(axis=1) - self.level_then[edges]
        change = risen - (size - self.size_then[edges]) * self.steepest[edges]
        drop = np.minimum(change, 0) / np.maximum(size + self.sizes.min(), 1)
        limit = self.beyond[edges] + weight * drop - self.rounding
        # First evaluate a few clients, then every client whose bound does not exceed their best cost.
        count = min(FIRST, ids.shape[1])
        first = np.argpartition(bounds, count - 1, axis=1)[:, :count]
        rows = np.repeat(np.arange(len(edges)), count)
        costs = self._costs(edges[rows], ids[rows, first.ravel()], latency[rows, first.ravel()])
        costs = costs.reshape(first.shape)
        best = costs.min(axis=1)
        np.put_along_axis(bounds, first, np.inf, axis=1)
        rows, places = np.nonzero((bounds <= best[:, None]) & (bounds < limit[:, None]))
        more = self._costs(edges[rows], ids[rows, places], latency[rows, places])
        np.minimum.at(best, rows, more)
        winner = np.where(costs == best[:, None], np.take_along_axis(ids, first, axis=1), len(self.alive))
        winners = winner.min(axis=1)
        tied = more == best[rows]
        np.minimum.at(winners, rows[tied], ids[rows[tied], places[tied]])
        sure = best < limit
        return list(zip(edges[sure].tolist(), winners[sure].tolist(), strict=True))

    def _from_all(self, edges: Counts) -> list[tuple[int, int]]:
        """Return (edge, cheapest client) among all unassociated clients, and make pools where they help."""
        weight, found, clients = np.float32(self.problem.weight), [], self.clients
        width = min(self.ids.shape[1], len(clients))
        slope, constant, level, error = self._tangents(edges)
        products = slope.astype(np.float32) @ self.columns
        young = bool((self.size[edges] < YOUNG * self.mean_size).any())
        squares = self._squares(edges) if young else None
        gone = np.flatnonzero(~self.alive[clients])
        total = np.empty_like(self.near_sizes)
        for row, edge in enumerate(edges.tolist()):
            bounds = products[row]
            bounds += np.float32(level[row])
            np.add(self.near_sizes, np.float32(max(self.size[edge], 1e-30)), out=total)  # 0 / 1e-30 is 0
            bounds /= total
            steepest = bounds.max()
            bounds += np.float32(constant[row])
            bounds *= weight
            bounds += self.latencies[edge]
            bounds -= np.float32(error[row])
            bounds[gone] = np.inf
            if bounds[bounds.argmin()] == np.inf:
                continue
            near = self._narrow(edge, bounds, None if squares is None else squares[row])
            costs = self._costs_of(edge, near)
            winner = int(costs.argmin())
            found.append((edge, int(clients[near[winner]])))
            # A pool helps if only few of its clients would have needed an evaluation this time.
            rivals = np.count_nonzero(bounds <= costs[winner])
            self.pooled[edge] = width == len(clients) or rivals < width // 8
            if self.pooled[edge]:
                order = np.argpartition(bounds, width) if width < len(clients) else np.arange(width)
                pool = clients[order[:width]]
                self.ids[edge, :width] = pool
                self.latency[edge, :width] = self.problem.latency_ms[edge, pool]
                self.latency[edge, :width][bounds[order[:width]] == np.inf] = np.inf
                self.latency[edge, width:] = np.inf
                self.beyond[edge] = bounds[order[width]] if width < len(clients) else np.inf
                self.slope_then[edge], self.level_then[edge] = slope[row], level[row]
                self.size_then[edge], self.steepest[edge] = self.size[edge], steepest
        return found

    def _squares(self, edges: Counts) -> list[tuple[Singles, Singles, np.float32]]:
        """Return per edge the products of squares and of deviations, and a constant, for `_narrow`.

        A client has s samples and the class counts x; adding it to the cluster gives p, with x capped at
        CAP q s. With d = min(x, CAP q s) - q s and e = (held - q size) / (size + mean), it follows that
        `(p - t) (size + s) = d + e (mean - s)`.
        """
        q, held, size = self.problem.target, self.held[edges], self.size[edges, None]
        t = (held + self.mean_size * q) / (size + self.mean_size)
        ends = [(held + CAP * q * s) / (size + s) for s in self.extremes]
        far = np.maximum(*ends)
        # Where the cap may lie below t, the square could exceed the gap.
        valid = (np.minimum(*ends) >= t) & (far > 1.1 * t) & (q > 0)
        t, far, q = np.where(valid, t, 1.0), np.where(valid, far, 2.0), np.where(valid, q, 1.0)
        missed = (far * np.log2(far / t) - (far + q) * np.log2((far + q) / (t + q))) / 2
        # The ratio of gap and square falls with p, so it is smallest at the far end.
        kappa = np.where(valid, missed / (far - t) ** 2, 0.0)
        excess = (held - self.problem.target * size) / (size + self.mean_size)
        square = kappa.astype(np.float32) @ self.square_columns
        cross = (2 * kappa * excess).astype(np.float32) @ self.off_columns
        rest = (kappa * excess**2).sum(axis=1).astype(np.float32)
        return list(zip(square, cross, rest, strict=True))

    def _narrow(
        self, edge: int, bounds: Singles, squares: tuple[Singles, Singles, np.float32] | None
    ) -> Counts:
        """Return the positions of the clients that neither their bound nor a closer one rules out.

        The gap of the tangent in one class is `(p log2(p / t) - (p + q) log2((p + q) / (t + q))) / 2`.
        """
        q, held, size = self.problem.target, self.held[edge], self.size[edge]
        near = np.array([bounds.argmin()])
        best = self._costs_of(edge, near).min()
        near = np.flatnonzero(bounds <= best)
        if len(near) <= FEW or size == 0:  # without any samples the divergence is 0, not JS
            return near
        t = (held + self.mean_size * q) / (size + self.mean_size)
        wanted = np.flatnonzero(q > 0)
        # Classes that the cluster lacks come first: there the gap is largest.
        labels = wanted[np.argsort(t[wanted] / q[wanted])].tolist()
        lower = bounds[near]
        if squares is not None:
            square, cross, rest = squares
            off = np.float32(self.mean_size) - self.near_sizes[near]
            rounded = np.float32(1 - 8 * SINGLE * (len(q) + 8))
            least = rounded * (square.take(near) + rest * off**2) + off * cross.take(near)
            least = np.maximum(least, 0) / (self.near_sizes[near] + np.float32(size)) ** 2
            lower += np.float32(self.problem.weight) * rounded * least
            kept = np.flatnonzero(lower <= best)
            near, lower = near[kept], lower[kept]
            if len(near) <= FEW:
                return near
        share = 1 / (self.near_sizes[near] + np.float32(size))
        missed = np.zeros(len(near), np.float32)
        for start, stop in ((0, 8), (8, 24), (24, len(labels))):
            first = near[np.argpartition(lower, FIRST)[:FIRST]]
            best = min(best, self._costs_of(edge, first).min())
            kept = np.flatnonzero(lower <= best)
            near, share, missed, lower = near[kept], share[kept], missed[kept], lower[kept]
            for label in labels[start:stop]:
                p = self.columns[label].take(near)
                p += np.float32(held[label])
                p *= share
                both = p + np.float32(q[label])
                missed += p * np.log(p / np.float32(t[label]) + TINY)
                missed -= both * np.log(both / np.float32(t[label] + q[label]))
            closer = self.problem.weight * (missed / (2 * math.log(2)) - self.js_error)
            lower = np.maximum(lower, bounds[near] + closer.astype(np.float32))
            if len(near) <= FEW:
                break
        return near.take(np.flatnonzero(lower <= best))

    def _costs_of(self, edge: int, places: Counts) -> Floats:
        """Return an edge's costs of the clients at these positions; infinite if it cannot reach them."""
        clients = self.clients[places]
        latency = self.problem.latency_ms[edge, clients]
        latency[self.latencies[edge, places] == np.inf] = np.inf
        return self._costs(np.array([edge]), clients, latency)

    def _costs(self, edges: Counts, clients: Counts, latency: Floats) -> Floats:
        """Return the costs of pairs as the reference computes them; infinite for unreachable pairs."""
        costs = np.full(len(clients), np.inf)
        edges = np.broadcast_to(edges, clients.shape)
        for start in range(0, len(clients), ROWS):
            part = start + np.flatnonzero(latency[start : start + ROWS] < np.inf)
            costs[part] = self.problem.costs(latency[part], self.held[edges[part]], clients[part])
        return costs
