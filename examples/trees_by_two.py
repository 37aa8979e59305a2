"""Boosted trees by two processes of the libraries' own, which their Dask interfaces use.

    python examples/trees_by_two.py        # LightGBM, then XGBoost

Each process holds half of the lists, whole. The trees are compared with those of one process.
"""

import multiprocessing
import socket
from contextlib import nullcontext
from typing import Any

import lightgbm
import numpy as np
import xgboost
from xgboost.tracker import RabitTracker

LISTS, ITEMS, WIDTH, ROUNDS = 400, 20, 10, 20


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and the list of each item."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(LISTS * ITEMS, WIDTH)).astype(np.float32)
    labels = np.clip(np.round(features[:, 0] + rng.normal(size=len(features)) + 1), 0, 4)
    return features, labels, np.repeat(np.arange(LISTS), ITEMS)


def by_xgboost(rank: int, count: int, where: dict[str, Any], out: Any) -> None:
    """The scores of trees trained on part ``rank``, put to ``out``."""
    features, labels, qid = data()
    own = qid % count == rank
    with xgboost.collective.CommunicatorContext(**where) if count > 1 else nullcontext():
        train = xgboost.DMatrix(features[own], labels[own], qid=qid[own])
        params = {"objective": "rank:ndcg", "tree_method": "hist", "nthread": 1, "seed": 1}
        trees = xgboost.train(params, train, ROUNDS)
    if rank == 0:
        out.put(trees.predict(xgboost.DMatrix(features)))


def by_lightgbm(rank: int, count: int, where: dict[str, Any], out: Any) -> None:
    """The same by LightGBM."""
    features, labels, qid = data()
    own = qid % count == rank
    params = {
        "objective": "lambdarank", "num_threads": 1, "seed": 1, "deterministic": True,
        "force_col_wise": True, "verbose": -1, "min_data_in_leaf": 20,
        **(where | {"local_listen_port": where["ports"][rank]} if count > 1 else {}),
    }  # fmt: skip
    params.pop("ports", None)
    sizes = np.unique(qid[own], return_counts=True)[1]
    train = lightgbm.Dataset(features[own], labels[own], group=sizes)
    trees = lightgbm.train(params, train, ROUNDS)
    if rank == 0:
        out.put(trees.predict(features))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def scores(function: Any, count: int) -> np.ndarray:
    """What ``count`` processes learn."""
    context = multiprocessing.get_context("spawn")
    where: dict[str, Any] = {}
    tracker = None
    if count > 1 and function is by_xgboost:
        tracker = RabitTracker(n_workers=count, host_ip="127.0.0.1")
        tracker.start()
        where = tracker.worker_args()
    elif count > 1:
        ports = free_ports(count)
        machines = ",".join(f"127.0.0.1:{port}" for port in ports)
        where = {"machines": machines, "num_machines": count, "tree_learner": "data",
                 "pre_partition": True, "ports": ports, "time_out": 2}  # fmt: skip
    out = context.Queue()
    ranks = [context.Process(target=function, args=(r, count, where, out)) for r in range(count)]
    for one in ranks:
        one.start()
    found = out.get(timeout=300)
    for one in ranks:
        one.join()
    if tracker is not None:
        tracker.wait_for()
    return found


def main() -> None:
    """Print how far the trees differ."""
    for name, function in (("LightGBM", by_lightgbm), ("XGBoost", by_xgboost)):
        one, again, two = (scores(function, count) for count in (1, 1, 2))
        order = [np.argsort(-s.reshape(LISTS, ITEMS), 1, kind="stable") for s in (one, two)]
        print(
            f"{name}: one process twice: the same bits {np.array_equal(one, again)}; two processes "
            f"beside one: the same bits {np.array_equal(one, two)}, scores up to "
            f"{np.abs(one - two).max():.3f} apart (their range {np.ptp(one):.2f}), "
            f"{(order[0] != order[1]).any(1).mean():.0%} of the lists in another order",
            flush=True,
        )


if __name__ == "__main__":
    main()
