"""The page at ``/`` and the data that it shows."""

from __future__ import annotations

import http.client
import json
import re

from tests.serve.conftest import Server
from tests.serve.test_server import call


def test_the_page_is_self_contained(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/")
    response = connection.getresponse()
    text, policy = response.read().decode(), response.getheader("Content-Security-Policy", "")
    connection.close()
    assert response.status == 200 and "default-src 'none'" in policy and "script-src 'sha256-" in policy
    assert not re.search(r"https?://|//[a-z]+\.|\bsrc=|@import|url\(|innerHTML", text)
    assert 'content="width=device-width' in text


def test_examples_of_the_form_are_answered(server: Server) -> None:
    models = json.loads(call(server, "/overview")[1])
    assert [(m["name"], m["version"], m["default"], m["state"]) for m in models] == [
        ("graph", "1", True, "READY"), ("scaled", "1", False, "READY"), ("scaled", "3", True, "READY"),
    ]  # fmt: skip
    for model in models:
        assert call(server, f"/{model['path']}", model["example"].encode())[0] == 200
        assert call(server, f"/{model['path']}", b"{}")[0] == 400
    for before, after in zip(models, json.loads(call(server, "/overview")[1]), strict=True):
        more = {key: after["figures"][key] - before["figures"][key] for key in after["figures"]}
        assert (more["answered"], more["batches"], more["waiting"]) == (1, 1, 0)
