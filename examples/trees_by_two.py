"""Trees of LightGBM by two processes of its own, which its Dask interface uses too.

    python examples/trees_by_two.py

Each process holds half of the lists, whole. The trees are compared with those of one process.
"""

import multiprocessing
import socket
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

LISTS, ITEMS, WIDTH, ROUNDS = 400, 20, 10, 20
PARAMS = {
    "objective": "lambdarank", "num_threads": 1, "seed": 1, "deterministic": True,
    "force_col_wise": True, "verbose": -1,
}  # fmt: skip


def learn(rank: int, ports: list[int], out: Any) -> None:
    """Train on part ``rank`` of as many as there are ``ports``; the first tells its scores."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(LISTS * ITEMS, WIDTH)).astype(np.float32)
    labels = np.clip(np.round(features[:, 0] + rng.normal(size=len(features)) + 1), 0, 4)
    own = np.repeat(np.arange(LISTS) % len(ports) == rank, ITEMS)
    params = dict(PARAMS)
    if len(ports) > 1:
        params |= {
            "machines": ",".join(f"127.0.0.1:{port}" for port in ports),
            "num_machines": len(ports), "local_listen_port": ports[rank],
            "tree_learner": "data", "pre_partition": True,
        }  # fmt: skip
    lists = [ITEMS] * (int(own.sum()) // ITEMS)
    train = lightgbm.Dataset(features[own], labels[own], group=lists)
    trees = lightgbm.train(params, train, ROUNDS)
    if rank == 0:
        out.put(trees.predict(features))


def scores(count: int) -> NDArray[np.float64]:
    """What ``count`` processes learn."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    ranks = [context.Process(target=learn, args=(rank, ports, out)) for rank in range(count)]
    for process in ranks:
        process.start()
    found: NDArray[np.float64] = out.get(timeout=300)
    for process in ranks:
        process.join()
    return found


def main() -> None:
    """Print how far the trees differ."""
    one, again, two = (scores(count) for count in (1, 1, 2))
    first, second = (np.argsort(-s.reshape(LISTS, ITEMS), 1, kind="stable") for s in (one, two))
    print(
        f"one process twice: the same bits {np.array_equal(one, again)}\n"
        f"two processes beside one: the same bits {np.array_equal(one, two)}, scores up to "
        f"{np.abs(one - two).max():.3f} apart (their range {np.ptp(one):.2f}), "
        f"{(first != second).any(1).mean():.0%} of the lists in another order"
    )


if __name__ == "__main__":
    main()
