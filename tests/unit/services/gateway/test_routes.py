"""services/gateway/routes.py: what is not generation, and how it is documented."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

import minedraft
from minedraft.errors import WorkerUnavailableError
from minedraft.services.gateway import app
from minedraft.services.gateway.config import GatewayConfig
from tests.unit.services.gateway.conftest import running


async def test_models_say_what_clients_ask_for(http):
    (model,) = (await http.get("/v1/models")).json()["data"]
    assert model["id"] == model["root"] == "fake-target"
    assert model["object"] == "model"
    assert model["owned_by"] == "minedraft"
    assert model["max_model_len"] == 4096
    assert model["minedraft"]["drafters"] == [
        {"name": "fake-drafter", "kind": "synthetic", "dtype": "float32"}
    ]
    assert (await http.get("/v1/models/fake-target")).json() == model
    assert (await http.get("/v1/models/other")).status_code == 404


async def test_a_model_may_have_several_names(fake):
    async with (
        running(fake, served_model_name=("a", "org/b")) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
    ):
        data = (await http.get("/v1/models")).json()["data"]
        assert [model["id"] for model in data] == ["a", "org/b"]
        assert (await http.get("/v1/models/org/b")).json()["id"] == "org/b"
        for name, shown in (("org/b", "org/b"), (None, "a")):
            body = {"prompt": "x", "model": name}
            assert (await http.post("/v1/completions", json=body)).json()["model"] == shown
        body = {"prompt": "x", "model": "fake-target"}
        assert (await http.post("/v1/completions", json=body)).status_code == 404


async def test_health_is_whether_a_request_could_be_served(http, fake):
    for path in ("/health", "/ping"):
        assert (await http.get(path)).status_code == 200
    fake.info_error = WorkerUnavailableError("no verifier")
    for path in ("/health", "/ping"):
        answered = await http.get(path)
        assert answered.status_code == 503
        assert answered.headers["retry-after"] == "1"
    assert (await http.get("/version")).json() == {"version": minedraft.__version__}


async def test_texts_and_ids_without_a_generation(http, fake):
    told = (await http.post("/tokenize", json={"prompt": "ab"})).json()
    assert told == {"tokens": [0, 97, 98], "count": 3, "max_model_len": 4096}
    body = {"prompt": "ab", "add_special_tokens": False}
    assert (await http.post("/tokenize", json=body)).json()["tokens"] == [97, 98]
    body = {"messages": [{"role": "user", "content": "a"}]}
    assert (await http.post("/tokenize", json=body)).json()["tokens"] == [117, 97]
    assert (await http.post("/detokenize", json={"tokens": [5, 6]})).json() == {"prompt": "w5 w6 "}
    for path, body, param in (
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
    ):
        answered = await http.post(path, json=body)
        assert answered.status_code == 400
        assert answered.json()["error"]["param"] == param
    assert (await http.get("/tokenizer_info")).json()["eos_token"] == "</s>"
    assert not fake.requests


async def test_metrics_are_the_coordinators(http):
    answered = await http.get("/metrics")
    assert answered.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "minedraft_up 1.0" in answered.text


async def test_load_counts_what_runs(http, fake):
    assert (await http.get("/load")).json() == {"server_load": 0}
    fake.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(http.post("/v1/completions", json={"prompt": "a"}))
        async with asyncio.timeout(5):
            while (await http.get("/load")).json()["server_load"] != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        fake.gate.set()
    assert (await http.get("/load")).json() == {"server_load": 0}


async def test_other_paths_and_methods_have_the_same_errors(http):
    answered = await http.get("/v1/completions")
    assert answered.status_code == 405
    assert answered.json()["error"]["type"] == "invalid_request_error"
    answered = await http.post("/v1/responses", json={})
    assert answered.status_code == 404
    assert answered.json()["error"]["code"] == "not_found"


async def test_the_document_has_every_path_and_the_docs_page_shows_it(http):
    document = (await http.get("/openapi.json")).json()
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/ping",
            "/version", "/load"} <= document["paths"].keys()  # fmt: skip
    post = document["paths"]["/v1/completions"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert "prompt" in schema["required"]
    assert {"400", "401", "404", "413", "429", "500", "503", "504"} <= post["responses"].keys()
    assert (await http.get("/docs")).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"{", "application/json", "not valid JSON"),
        (b'{"prompt": "\\ud800"}', "application/json", "half a surrogate"),
        (b"[" * 200_000, "application/json", "nested too deep"),
        (b"\xff", "application/json", "not valid JSON"),
        (b'{"prompt": "a"}', "text/plain", "content-type"),
    ],
)
async def test_malformed_bodies_are_400(http, fake, content, kind, said):
    headers = {"content-type": kind}
    answered = await http.post("/v1/completions", content=content, headers=headers)
    assert answered.status_code == 400
    assert said in answered.json()["error"]["message"]
    assert not fake.requests


async def test_pages_of_named_origins_may_call_and_no_others(fake):
    async with (
        running(fake, cors_origins=("https://a.example",)) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
    ):
        for origin, allowed in (("https://a.example", "https://a.example"), ("https://b", None)):
            answered = await http.get("/v1/models", headers={"origin": origin})
            assert answered.headers.get("access-control-allow-origin") == allowed


async def test_without_a_coordinator_it_serves_and_says_so():
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = GatewayConfig(listen="127.0.0.1:0", coordinator="127.0.0.1:1")
    async with asyncio.TaskGroup() as group:
        group.create_task(app.run(config, ready=address.set_result, stop=stop))
        async with httpx2.AsyncClient(base_url=f"http://{await address}", timeout=10) as http:
            for answered in (
                await http.get("/health"),
                await http.get("/v1/models"),
                await http.post("/v1/completions", json={"prompt": "a"}),
            ):
                assert answered.status_code == 503
                assert answered.headers["retry-after"] == "1"
            assert (await http.get("/version")).status_code == 200
        stop.set()
