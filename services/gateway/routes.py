"""The endpoints, as a FastAPI application: it routes, documents, and says 404 and 405.

Endpoints that generate are ASGI applications of their own (`answer`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import minedraft
from minedraft.errors import MineDraftError, WorkerUnavailableError
from minedraft.services.gateway.answer import Answer
from minedraft.services.gateway.asked import read_chat, read_completion, read_messages
from minedraft.services.gateway.body import Body, parse, refuse
from minedraft.services.gateway.documents import CHAT, COMPLETION, ERRORS
from minedraft.services.gateway.refusal import BUG, Refusal, refusal_of
from minedraft.services.gateway.request_body import read_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.services.gateway.asked import Asked
    from minedraft.services.gateway.site import Site
    from minedraft.types import ModelInfo

_GENERATION: Final = "Generation"
_SERVER: Final = "Server"


def build(site: Site) -> FastAPI:
    """Build the application."""
    app = FastAPI(
        title="MineDraft",
        version=minedraft.__version__,
        description="OpenAI-compatible completions with batch-parallel speculative decoding.",
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    endpoints = _Endpoints(site)
    for path, read, schema in (
        ("/v1/completions", read_completion, COMPLETION),
        ("/v1/chat/completions", read_chat, CHAT),
    ):
        app.add_api_route(
            path,
            _generating(site, read),
            methods=["POST"],
            tags=[_GENERATION],
            summary=schema["summary"],
            operation_id=read.__name__,
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema["body"]}},
                }
            },
            responses=ERRORS,
            response_model=None,
        )
    for path, endpoint, tag in (
        ("/v1/models", endpoints.models, _GENERATION),
        ("/v1/models/{name:path}", endpoints.model, _GENERATION),
        ("/health", endpoints.health, _SERVER),
        ("/ping", endpoints.health, _SERVER),
        ("/version", endpoints.version, _SERVER),
        ("/load", endpoints.load, _SERVER),
        ("/metrics", endpoints.metrics, _SERVER),
        ("/tokenizer_info", endpoints.tokenizer_info, _GENERATION),
    ):
        app.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            tags=[tag],
            operation_id=path.strip("/").partition("{")[0].replace("/", "_") or None,
            response_model=None,
        )
    for path, text_endpoint in (
        ("/tokenize", endpoints.tokenize),
        ("/detokenize", endpoints.detokenize),
    ):
        app.add_api_route(
            path,
            text_endpoint,
            methods=["POST"],
            tags=[_GENERATION],
            responses=ERRORS,
            response_model=None,
        )
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(MineDraftError, _our_error)
    app.add_exception_handler(Exception, _bug)
    if site.config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(site.config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id"],
        )
    return app


class _Endpoints:
    """Endpoints that do not generate."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def models(self) -> Response:
        """List the names of the served model."""
        data = [self._model(name) for name in self._site.upstream.facts.names]
        return _json(200, {"object": "list", "data": data})

    async def model(self, name: str) -> Response:
        """Describe one model."""
        self._site.upstream.facts.check_name(name)
        return _json(200, self._model(name))

    async def health(self) -> Response:
        """Answer 200 if a request could be served now, else 503."""
        try:
            self._site.check_open()
            await self._site.upstream.check()
        except MineDraftError as err:
            refusal = refusal_of(WorkerUnavailableError(str(err)))
            return _refused(refusal)
        return _json(200, {"status": "ok"})

    async def version(self) -> Response:
        """Return the version of the gateway."""
        return _json(200, {"version": minedraft.__version__})

    async def load(self) -> Response:
        """Return how many generation requests run here."""
        return _json(200, {"server_load": self._site.num_busy})

    async def metrics(self) -> Response:
        """Return the coordinator's metrics in Prometheus' text format."""
        text = await self._site.upstream.client.metrics()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def tokenizer_info(self) -> Response:
        """Describe the target's tokenizer."""
        info = await self._site.upstream.client.tokenizer_info()
        return _json(200, {"tokenizer_class": "minedraft", "chat_template": info.chat_template,
                           "vocab_size": info.vocab_size, **info.named_tokens})  # fmt: skip

    async def tokenize(self, request: Request) -> Response:
        """Turn a text or a chat into token ids, as a generation would."""
        body = await self._body(request)
        client = self._site.upstream.client
        if body.has("messages"):
            ids = await client.tokenize(messages=read_messages(body.raw("messages")))
        else:
            text = body.text("prompt")
            if text is None:
                refuse("prompt", None, "a text, or messages")
            ids = await client.tokenize(
                text,
                add_special_tokens=body.flag("add_special_tokens", default=True),
                parse_special_tokens=body.flag("parse_special_tokens", default=True),
            )
        most = self._site.upstream.facts.target.model.max_model_len
        return _json(200, {"tokens": ids, "count": len(ids), "max_model_len": most})

    async def detokenize(self, request: Request) -> Response:
        """Turn token ids into text."""
        body = await self._body(request)
        return _json(
            200, {"prompt": await self._site.upstream.client.detokenize(body.ids("tokens"))}
        )

    async def _body(self, request: Request) -> Body:
        config = self._site.config
        self._site.check_open()
        raw = await read_body(
            request.scope,
            request.receive,
            max_bytes=config.max_body_bytes,
            timeout_s=config.slow_reader_s,
        )
        body = parse(raw)
        self._site.upstream.facts.check_name(body.text("model"))
        return body

    def _model(self, name: str) -> dict[str, Any]:
        facts = self._site.upstream.facts
        target = facts.target.model
        return {
            "id": name,
            "object": "model",
            "created": facts.created,
            "owned_by": "minedraft",
            "root": target.name,
            "parent": None,
            "max_model_len": target.max_model_len,
            "minedraft": {
                "dtype": target.dtype,
                "acceptance": facts.server.acceptance,
                "num_draft_tokens": facts.server.mode.num_draft_tokens,
                "has_chat_template": facts.target.has_chat_template,
                "drafters": [_drafter(model) for model in facts.drafters],
            },
        }


def _generating(site: Site, read: Callable[[Body], Asked]) -> Callable[[], Any]:
    async def endpoint() -> Answer:
        return Answer(site, read)

    return endpoint


def _drafter(model: ModelInfo) -> dict[str, Any]:
    return {"name": model.name, "kind": model.drafter_kind, "dtype": model.dtype}


def _json(status: int, value: object) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


def _refused(refusal: Refusal) -> Response:
    return Response(
        refusal.encoded, refusal.status, dict(refusal.headers), media_type="application/json"
    )


async def _our_error(_request: Request, err: Any) -> Response:  # noqa: ANN401  # starlette's
    return _refused(refusal_of(err))


async def _bug(_request: Request, _err: Any) -> Response:  # noqa: ANN401  # starlette's
    return _refused(BUG)  # the door logs it


async def _http_error(_request: Request, err: Any) -> Response:  # noqa: ANN401  # starlette's
    """Say 404 and 405 as every other error."""
    code = "not_found" if err.status_code == 404 else None  # noqa: PLR2004 HTTP's own
    refusal = Refusal(
        err.status_code, str(err.detail), code=code, headers=tuple((err.headers or {}).items())
    )
    return _refused(refusal)
