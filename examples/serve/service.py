"""Rank over HTTP with an exported model: a folder with ``model.onnx`` and ``manifest.json``.

    ltr export checkpoint=outputs/RUN to=onnx output=exported
    LTR_MODEL=exported uvicorn service:app --workers 2

``POST /rank`` with ``{"items": [{"id": "a", "features": [0.3, 5, ...]}, ...]}`` answers
``{"ranked": [{"id": "a", "score": 1.7}, ...]}``, best first; items of equal scores keep their
order. ``features`` is a list in the order of the manifest, or an object by name, where what is left
out is missing, as ``null`` is. A category is given by its value: a text, number or flag. A wrong
request is 422 with one line, ``{"error": "items[3].features: ..."}``. ``GET /health`` says which
model answers.

The service does not start with a ``model.onnx`` or ``manifest.json`` that the export did not write:
it compares their SHA-256 with those in the manifest.

``LTR_MOST_ITEMS`` (1,000) bounds a list, ``LTR_MOST_BYTES`` (16 MB) a request.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect


class Refused(Exception):
    """A request that cannot be answered; its text is the line of the answer."""

    def __init__(self, text: str, status: int = 422) -> None:
        super().__init__(text)
        self.status = status


class BadExport(Exception):
    """A folder that cannot be served; its text is one line."""


def read_export(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Read the manifest and the model of an export, and compare both with their digests.

    Raises:
        BadExport: a file is missing, or it is not the one that the export wrote.
    """
    remedy = "give the folder that ltr export to=onnx wrote, or export again"
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        model = (folder / "model.onnx").read_bytes()
    except OSError as error:
        raise BadExport(f"{error.filename}: {error.strerror}; {remedy}") from None
    except ValueError:
        raise BadExport(f"{folder}/manifest.json is not JSON; {remedy}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("features"), list):
        raise BadExport(f"{folder}/manifest.json names no features; {remedy}")
    digests = manifest.get("sha256", {})
    files = digests.get("files", {})  # a manifest without digests was written by hand
    if files.get("model.onnx") not in (None, hashlib.sha256(model).hexdigest()):
        raise BadExport(f"{folder}/model.onnx is not the model of its manifest.json; {remedy}")
    rest = {**manifest, "sha256": {key: digests[key] for key in digests if key != "manifest"}}
    text = json.dumps(rest, sort_keys=True)
    if digests.get("manifest") not in (None, hashlib.sha256(text.encode()).hexdigest()):
        raise BadExport(f"{folder}/manifest.json is not as the export wrote it; {remedy}")
    return manifest, model


class Ranker:
    """The exported model; each call scores one list on one thread.

    Args:
        folder: of ``ltr export to=onnx``.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest, model = read_export(folder)
        self.features = [str(name) for name in self.manifest["features"]]
        self._known = frozenset(self.features)
        self._codes: dict[str, dict[str, int]] = {
            name: {text: i for i, text in enumerate(known, 1)}
            for name, known in self.manifest.get("categories", {}).items()
        }
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # workers are processes
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self.scores(np.zeros((2, len(self.features)), np.float32))  # the first call is slow

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores ``[list]`` of raw features ``[list, feature]`` float32; NaN is missing."""
        given = {"features": features[None], "mask": np.ones((1, len(features)), bool)}
        return self._session.run(["scores"], given)[0][0]

    def row(self, given: Any, where: str) -> list[float]:
        """The features of an item in order; ``Refused`` names ``where`` it is wrong."""
        if isinstance(given, dict):
            if unknown := [name for name in given if name not in self._known]:
                raise Refused(
                    f"{where}: {_shown(unknown[0])} is not a feature; GET /health lists them"
                )
            named = [given.get(name) for name in self.features]
        elif isinstance(given, list) and len(given) == len(self.features):
            named = given
        else:
            what = f"{len(given)} numbers" if isinstance(given, list) else "not a list or object"
            raise Refused(
                f"{where}: {what}; give {len(self.features)} in the order of the manifest, or an "
                "object by name"
            )
        return [
            self._code(name, value, f"{where}.{name}")
            if name in self._codes
            else _number(value, f"{where}.{name}")
            for name, value in zip(self.features, named, strict=True)
        ]

    def _code(self, name: str, value: Any, where: str) -> float:
        """The code of a category's value, by the rule in the manifest's notes."""
        text = _text(value, where)
        return self._codes[name].get(text, 0) if text else math.nan


def _number(value: Any, where: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{where}: {_shown(value)} is not a number; give a number or null")
    if not abs(value) <= _LARGEST:
        raise Refused(f"{where}: larger than a float32; give a finite number, or null")
    return float(value)


def _text(value: Any, where: str) -> str:
    """The text that a value of a category is known by, as in training; empty: it is missing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str) or _HALF.search(value):
        raise Refused(f"{where}: {_shown(value)} is not a text, number or flag; give one, or null")
    whole = _WHOLE.fullmatch(value)
    return whole[1] if whole else _FLAGS.get(value, value)


def _shown(value: Any) -> str:
    """A value in the line of an answer, in ASCII."""
    return json.dumps(value)[:40]


_LARGEST = float(np.finfo(np.float32).max)
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_FLAGS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_HALF = re.compile("[\ud800-\udfff]")  # half of a character of JSON, which UTF-8 cannot hold


def service(folder: Path, *, most_items: int = 1000, most_bytes: int = 1 << 24) -> FastAPI:
    """The app that answers with the model in ``folder``.

    Args:
        folder: of ``ltr export to=onnx``; read when the app starts.
        most_items: in a list.
        most_bytes: of a request.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.ranker = Ranker(folder)
        yield

    app = FastAPI(title="ltr", lifespan=lifespan)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.status)

    @app.get("/health")
    def health(request: Request) -> dict[str, Any]:
        ranker: Ranker = request.app.state.ranker
        known = ranker.manifest
        model = {key: known.get(key) for key in ("model", "dataset", "sha256")}
        return {"status": "ok", **model, "features": ranker.features, "most_items": most_items}

    @app.post("/rank")
    async def rank(request: Request) -> dict[str, Any]:
        body = await _body(request, most_bytes)
        # in a thread, so that a long list keeps nobody else waiting
        return await run_in_threadpool(_ranked, request.app.state.ranker, body, most_items)

    return app


def _ranked(ranker: Ranker, body: bytes, most: int) -> dict[str, Any]:
    """The answer to a request."""
    items = _items(body, most)
    rows = [
        ranker.row(item.get("features"), f"items[{i}].features") for i, item in enumerate(items)
    ]
    scores = ranker.scores(np.array(rows, np.float32))
    if not np.isfinite(scores).all():
        raise Refused("items: a score is not finite; look at the largest features")
    order = np.argsort(-scores, kind="stable").tolist()
    return {"ranked": [{"id": items[i]["id"], "score": float(scores[i])} for i in order]}


async def _body(request: Request, most: int) -> bytes:
    """The body, read no further than ``most`` bytes."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise Refused(f"the request has more than {most:,} bytes; send fewer items", 413)
    except ClientDisconnect:  # nobody reads the answer
        raise Refused("the client left before the end of its request", 499) from None
    return bytes(body)


def _items(body: bytes, most: int) -> list[dict[str, Any]]:
    """The items of a request, each with an id of its own."""
    try:
        given = json.loads(body, parse_constant=_not_finite)
    except (ValueError, RecursionError):
        raise Refused(
            'the request is not JSON; send {"items": [{"id": ..., "features": ...}]}'
        ) from None
    items = given.get("items") if isinstance(given, dict) else None
    if not isinstance(items, list) or not items:
        raise Refused('items: none; send {"items": [{"id": ..., "features": ...}]}')
    if len(items) > most:
        raise Refused(f"items: {len(items):,} of them; send {most:,} at most")
    seen = set()
    for i, item in enumerate(items):
        known = item.get("id") if isinstance(item, dict) else None
        if not isinstance(known, str | int) or isinstance(known, bool) or _HALF.search(str(known)):
            raise Refused(f"items[{i}].id: give a text or a whole number")
        if known in seen:
            raise Refused(f"items[{i}].id: {_shown(known)} comes twice")
        seen.add(known)
    return items


def _not_finite(literal: str) -> float:
    raise Refused(f"{literal} is not a number in JSON; send a finite one, or null if it is missing")


def __getattr__(name: str) -> FastAPI:
    """``app`` for ``uvicorn service:app``, made of the environment when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        folder = Path(os.environ["LTR_MODEL"])
        read_export(folder)  # before the server starts, so that a wrong folder ends in one line
        return service(
            folder,
            most_items=int(os.environ.get("LTR_MOST_ITEMS", "1000")),
            most_bytes=int(os.environ.get("LTR_MOST_BYTES", str(1 << 24))),
        )
    except KeyError:
        raise SystemExit("error: set LTR_MODEL to the folder of ltr export to=onnx") from None
    except ValueError as error:
        raise SystemExit(f"error: LTR_MOST_ITEMS, LTR_MOST_BYTES: {error}") from None
    except BadExport as error:
        raise SystemExit(f"error: {error}") from None
