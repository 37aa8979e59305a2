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
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit


def connected(address: str) -> closing[HTTPConnection]:
    """A connection to ``http://HOST:PORT``, or to ``HOST:PORT``."""
    netloc = urlsplit(address if "//" in address else f"//{address}").netloc
    return closing(HTTPConnection(netloc, timeout=60))


def ask(address: str, body: str, until: float, latencies: list[float], failed: list[Any]) -> None:
    """Send ``body`` once, and again until the clock says ``until`` or the service does not answer.

    Other statuses than 200, and what went wrong, are added to ``failed``.
    """
    with connected(address) as connection:
        while True:
            began = time.perf_counter()
            try:
                connection.request("POST", "/rank", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, HTTPException) as error:
                failed.append(error)
                return
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

    try:
        with connected(given.address) as connection:
            connection.request("GET", "/health")
            width = len(json.loads(connection.getresponse().read())["features"])
    except (OSError, HTTPException, ValueError, KeyError) as error:
        raise SystemExit(
            f"error: no service answers at {given.address} ({error}): give http://HOST:PORT"
        ) from None
    rng = random.Random(0)
    items = [
        {"id": i, "features": [rng.random() for _ in range(width)]} for i in range(given.items)
    ]
    body = json.dumps({"items": items})
    latencies: list[float] = []
    failed: list[Any] = []
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
    if not latencies:
        raise SystemExit(f"error: {given.address} answers no request: {failed[0]}")
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
