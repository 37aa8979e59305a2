"""From a DataFrame to a served model: fit a ranker, save it, load it in a service, and ask it.

    python examples/served.py [--queries 300] [--epochs 5]

The service answers ``POST /rank`` with a JSON list of the products of a search, best first. It is
the standard library's server: enough to try, not for the public.
"""

import argparse
import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pandas as pd
from shop import shop

from ltr import Ranker


def service(ranker: Ranker) -> type[BaseHTTPRequestHandler]:
    """A handler that ranks the products of a request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                products = pd.DataFrame(json.loads(content))
                features = products.reindex(columns=ranker.feature_names_in_)
                scores = ranker.predict(features, qid=["request"] * len(products))
                products = products.assign(score=scores).sort_values("score", ascending=False)
                status, answer = 200, products[["product", "score"]].to_json(orient="records")
            except (ValueError, TypeError, KeyError) as error:
                status, answer = 400, json.dumps({"error": str(error)})
            self.send_response(status if self.path == "/rank" else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def main() -> None:
    """Fit, save, load, serve one request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()

    table = shop(given.queries)
    test = table["search"] >= f"s{given.queries * 9 // 10:05d}"
    X = table.drop(columns=["search", "product", "grade"])
    texts = ["brand", "colour", "department"]
    ranker = Ranker(
        "transformer", "neuralndcg", epochs=given.epochs, random_state=1, categories=texts
    )
    ranker.fit(X[~test], table["grade"][~test], qid=table["search"][~test])
    print(
        f"ndcg@5 of test: {ranker.score(X[test], table['grade'][test], table['search'][test]):.4f}"
    )

    with tempfile.TemporaryDirectory() as folder:
        ranker.save(Path(folder) / "model")  # a run folder: ltr evaluate and predict read it too
        loaded = Ranker.load(Path(folder) / "model")
    server = ThreadingHTTPServer(("127.0.0.1", 0), service(loaded))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    products = table[table["search"] == table["search"][test].iloc[0]]
    body = products.drop(columns=["search", "grade"]).to_json(orient="records").encode()
    address = f"http://127.0.0.1:{server.server_address[1]}/rank"
    with urlopen(Request(address, body, {"Content-Type": "application/json"})) as answer:
        ranking = json.loads(answer.read())
    server.shutdown()
    print(f"POST {address} with {len(products)} products:")
    for place, one in enumerate(ranking[:3], 1):
        print(f"{place}. {one['product']}  {one['score']:.4f}")
    expected = ranker.rank(X.loc[products.index], products["search"])
    best = products["product"].to_numpy()[expected.argmin()]
    assert ranking[0]["product"] == best


if __name__ == "__main__":
    main()
