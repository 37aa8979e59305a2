"""``examples/serve``: what the service answers, and what it refuses."""

import asyncio
import json
import math
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ltr.data.tables import ColumnRoles
from ltr.inference.export.command import file_sha256, manifest_digest
from tests.helpers.made_columns import lists_of
from tests.helpers.paths import ROOT

pytest.importorskip("fastapi")
pytest.importorskip("httpx2")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

sys.path.insert(0, str(ROOT / "examples" / "serve"))

import load  # noqa: E402
import service as served  # noqa: E402
from service import BadExport, Ranker, read_export, service  # noqa: E402
from starlette.requests import ClientDisconnect, Request  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

WEIGHTS = [2.0, -1.0, 0.5]


def write_model(folder: Path, **more: object) -> Path:
    """An exported folder: the weighted sum of three features, of which the missing count 0.

    ``more`` is for its manifest.
    """
    weights = ", ".join(map(str, WEIGHTS))
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        sums (float[batch, list, 3] features, bool[batch, list] mask) => (float[batch, list] scores)
        <float[3, 1] weights = {{{weights}}}, float zero = {{0.0}}, int64[1] last = {{2}}> {{
            missing = IsNaN(features)
            filled = Where(missing, zero, features)
            column = MatMul(filled, weights)
            sums = Squeeze(column, last)
            scores = Where(mask, sums, zero)
        }}""")
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    told = {"features": ["price", "age", "stock"], "model": "Linear", "dataset": "shop"}
    told |= more
    told["sha256"] = {"files": {"model.onnx": file_sha256(folder / "model.onnx")}}
    told["sha256"]["manifest"] = manifest_digest(told)
    (folder / "manifest.json").write_text(json.dumps(told))
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory):
    folder = write_model(tmp_path_factory.mktemp("serve") / "exported")
    with TestClient(service(folder, most_items=4, most_bytes=2000)) as answering:
        yield answering


def test_items_come_back_best_first_with_their_scores(client) -> None:
    rows = {"a": [1.0, 2.0, 0.0], "b": [3.0, 0.0, 1.0], 7: [1.0, 2.0, 0.0], "d": [0.0, 9.0, 4.0]}
    sent = [{"id": known, "features": row} for known, row in rows.items()]
    ranked = client.post("/rank", json={"items": sent}).json()["ranked"]
    assert [item["id"] for item in ranked] == ["b", "a", 7, "d"]  # ties as they came
    expected = [float(np.dot(rows[item["id"]], WEIGHTS)) for item in ranked]
    assert [item["score"] for item in ranked] == pytest.approx(expected)
    given = {"named": {"stock": 4, "price": 1}, "in order": [1, None, 4], "other": {"age": 1}}
    sent = [{"id": known, "features": row} for known, row in given.items()]
    ranked = client.post("/rank", json={"items": sent}).json()["ranked"]
    found = {item["id"]: item["score"] for item in ranked}
    assert found == {"named": 4.0, "in order": 4.0, "other": -1.0}
    said = client.get("/health").json()
    assert (said["status"], said["features"]) == ("ok", ["price", "age", "stock"])
    assert said["model"] == "Linear"


def item(features: object, known: object = "a") -> dict:
    return {"items": [{"id": known, "features": features}]}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"{", "not JSON"),
        (b"[" * 1500, "not JSON"),
        ([], "items: none"),
        ({"items": [3]}, "items[0].id"),
        (item([1, 2, 3], True), "items[0].id"),
        ({"items": item([1, 2, 3])["items"] * 2}, "items[1].id: \"a\" comes twice"),
        ({"items": item([1, 2, 3])["items"] * 5}, "send 4 at most"),
        (item([1, 2]), "items[0].features: 2 numbers; give 3"),
        (item("1 2 3"), "items[0].features: not a list"),
        (item([1, "two", 3]), "items[0].features.age: \"two\" is not a number"),
        (item([1, True, 3]), "items[0].features.age: true is not a number"),
        (item([1, 1e39, 3]), "items[0].features.age: larger"),
        (item([1, 10**400, 3]), "items[0].features.age: larger"),
        (item([1, math.nan, 3]), "NaN is not a number in JSON; send a finite one, or null"),
        (item({"\n\ud800": 1}), "items[0].features: \"\\n\\ud800\" is not a feature"),
        (item([1, 2, 3], "\ud800"), "items[0].id"),
        (item([0, 0, 0], "x" * 3000), "more than 2,000 bytes"),
        (item([3e38, -3e38, 0]), "not finite"),  # the sum
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_in_one_line(client, sent, said) -> None:
    body = sent if isinstance(sent, bytes) else json.dumps(sent)
    answer = client.post("/rank", content=body)
    assert answer.status_code == (413 if "bytes" in said else 422)
    (error,) = answer.json().values()
    assert said in error
    assert "\n" not in error


def test_files_that_the_export_did_not_write_are_not_served(tmp_path, monkeypatch) -> None:
    folder = write_model(tmp_path / "exported", seed=1, rates={2: 0.1, 10: 1e-7}, text="\u00e9")
    read_export(folder)
    contents = {name: (folder / name).read_bytes() for name in ("model.onnx", "manifest.json")}
    flipped = bytearray(contents["model.onnx"])
    flipped[len(flipped) // 2] ^= 1
    manifest = contents["manifest.json"]
    for name, content, said in (
        ("model.onnx", bytes(flipped), "model.onnx is not the model of its manifest.json"),
        ("manifest.json", manifest.replace(b"price", b"prize"), "not as the export wrote it"),
        ("manifest.json", manifest.replace(b'"seed": 1', b'"seed": 3'), "not as the export"),
        ("manifest.json", manifest[:-9], "not JSON"),
        ("manifest.json", b"[]", "names no features"),
        ("model.onnx", None, "No such file"),
    ):
        (folder / name).write_bytes(content) if content else (folder / name).unlink()
        with pytest.raises(BadExport, match=said):
            Ranker(folder)
        monkeypatch.setenv("LTR_MODEL", str(folder))
        with pytest.raises(SystemExit, match=f"^error: .*{said}.* export again$"):
            served.app  # noqa: B018
        (folder / name).write_bytes(contents[name])
    monkeypatch.delenv("LTR_MODEL")
    with pytest.raises(SystemExit, match=r"^error: set LTR_MODEL"):
        served.app  # noqa: B018


def test_a_client_that_leaves_in_its_request_leaves_no_traceback(client, monkeypatch) -> None:
    async def stream(_: Request):
        yield b'{"it'
        raise ClientDisconnect

    monkeypatch.setattr(Request, "stream", stream)
    answer = client.post("/rank", content=b"{}")
    assert answer.status_code == 499
    assert "the client left" in answer.json()["error"]


def test_a_category_is_coded_as_a_table_is(tmp_path) -> None:
    train = {
        "price": [3, 3, 3, 2, 2, 1], "age": ["red", "red", "1", "1", "true", "x"],
        "stock": list("aabbcc"), "q": [1] * 6, "y": [0] * 6,
    }  # fmt: skip
    coded = ("price", "age", "stock")
    found = lists_of(pa.table(train), ColumnRoles(query="q", label="y", categories=coded)).columns
    assert found.categories["price"] == ("3", "2", "1")
    numbers = [3, 1.0, 2, 7.5, -0.0, 1e20, None]
    texts = ["red", "true", "1.0", "True", "blue", "", "1.50"]
    tried = {"price": pa.array(numbers, pa.float64()), "age": texts, "stock": texts, "q": [1] * 7}
    live = lists_of(
        pa.table(tried), ColumnRoles(query="q", categories=coded), columns=found, labelled=False
    )
    folder = write_model(tmp_path / "exported", categories=found.state()["categories"])
    sent = [
        {"id": i, "features": [a, b, b]}
        for i, (a, b) in enumerate(zip(numbers, texts, strict=True))
    ]
    sent[1]["features"][1] = True  # a flag of JSON is its text
    sent[2]["features"][:2] = ["2.0", 1]  # so is a number, and the other way round
    with TestClient(service(folder)) as answering:
        ranked = answering.post("/rank", json={"items": sent}).json()["ranked"]
        for wrong in ([[1], "red", "a"], [1, "\ud800", "a"]):
            assert answering.post("/rank", content=json.dumps(item(wrong))).status_code == 422
    scores = np.nan_to_num(live.features) @ np.array(WEIGHTS, np.float32)
    assert {one["id"]: one["score"] for one in ranked} == pytest.approx(dict(enumerate(scores)))


def test_a_list_is_scored_beside_the_loop_that_answers_others(client, monkeypatch) -> None:
    loops = []

    def scores(_: Ranker, features: np.ndarray) -> np.ndarray:
        loops.append(asyncio._get_running_loop())
        return np.zeros(len(features))

    monkeypatch.setattr(Ranker, "scores", scores)
    assert client.post("/rank", json=item([1, 2, 3])).status_code == 200
    assert loops == [None]


def test_a_load_counts_requests_and_failures(client, monkeypatch, capsys) -> None:
    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        log_message = lambda *_: None  # noqa: E731

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = client.request(self.command, self.path, content=body)
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_GET

    def measure(address: str, items: str) -> None:
        given = [address, "--items", items, "--seconds", "0", "--clients", "1"]
        monkeypatch.setattr(sys, "argv", ["load.py", *given])
        load.main()

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host = f"127.0.0.1:{server.server_port}"
        measure(f"http://{host}", "4")
        measure(host, "5")  # the service takes four
        server.shutdown()
        thread.join()
    with pytest.raises(SystemExit, match=f"no service answers at {host} .*give http://"):
        measure(host, "4")
    good, bad = capsys.readouterr().out.splitlines()
    assert "4 items of 3 features" in good
    assert "failed" not in good
    assert "1 failed, the first with 422" in bad
