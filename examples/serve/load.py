"""Ask a service for rankings as fast as it answers, and print requests/s and latencies.

    python examples/serve/load.py http://127.0.0.1:8000 [--items 100] [--seconds 10] [--clients 2]

Every client has a connection of its own and sends one request after the other.
"""

import argparse
import json
import random
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit


def ask(address: str, body: str, until: float, latencies: list[float], failed: list[int]) -> None:
    """Send ``body`` once, and again until the clock says ``until``."""
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
        while True:
            began = time.perf_counter()
            connection.request("POST", "/rank", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            now = time.perf_counter()
            latencies.append(now - began)
            failed += [answer.status] if answer.status != 200 else []
            if now >= until:
                return


def main() -> None:
    """Measure one service."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address")
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=2)
    given = parser.parse_args()

    with closing(HTTPConnection(urlsplit(given.address).netloc, timeout=60)) as connection:
        connection.request("GET", "/health")
        width = len(json.loads(connection.getresponse().read())["features"])
    rng = random.Random(0)
    items = [
        {"id": i, "features": [rng.random() for _ in range(width)]} for i in range(given.items)
    ]
    body = json.dumps({"items": items})
    latencies: list[float] = []
    failed: list[int] = []
    began = time.perf_counter()
    clients = [
        threading.Thread(
            target=ask, args=(given.address, body, began + given.seconds, latencies, failed)
        )
        for _ in range(given.clients)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    took = time.perf_counter() - began
    latencies.sort()
    at = {share: latencies[int(share * (len(latencies) - 1))] for share in (0.5, 0.95, 0.99)}
    print(
        f"{given.items} items of {width} features, {given.clients} clients: "
        f"{len(latencies) / took:,.1f} requests/s, "
        + ", ".join(f"p{100 * share:g} {1e3 * value:.1f} ms" for share, value in at.items())
        + (f"; {len(failed)} failed, the first with {failed[0]}" if failed else "")
    )


if __name__ == "__main__":
    main()
