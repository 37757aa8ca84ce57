"""Which role may call which RPC, written down once more: what the policy is compared with."""

from __future__ import annotations

GENERATE = {
    "/minedraft.v1.Generation/Generate",
    "/minedraft.v1.Generation/Abort",
    "/minedraft.v1.Generation/Tokenize",
    "/minedraft.v1.Generation/Detokenize",
}
READ_MODELS = {
    "/minedraft.v1.Generation/GetModelInfo",
    "/minedraft.v1.Generation/GetServerInfo",
    "/minedraft.v1.Generation/GetTokenizerInfo",
}
READ_STATUS = {
    "/minedraft.v1.Admin/GetStatus",
    "/minedraft.v1.Admin/GetTimeline",
    "/minedraft.v1.Admin/GetMetrics",
}
EXPLORE = {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}
OPERATE = {"/minedraft.v1.Admin/SetMode", "/minedraft.v1.Admin/SwapDrafter"}
STEP = {
    "/minedraft.v1.Verifier/GetInfo",
    "/minedraft.v1.Verifier/Session",
    "/minedraft.v1.Verifier/FormLink",
    "/minedraft.v1.Drafter/GetInfo",
    "/minedraft.v1.Drafter/Session",
    "/minedraft.v1.Drafter/FormLink",
    "/minedraft.v1.Drafter/DropLink",
    "/minedraft.v1.Drafter/LoadModel",
}
DRAFT = {
    "/minedraft.v1.TokenLink/SendPackets",
    "/minedraft.v1.TokenLink/SetKey",
    "/minedraft.v1.TokenLink/GetKey",
}

MAY_CALL = {
    "client": GENERATE | READ_MODELS,
    "monitor": READ_MODELS | READ_STATUS | EXPLORE,
    "gateway": GENERATE | READ_MODELS | READ_STATUS,
    "admin": GENERATE | READ_MODELS | READ_STATUS | EXPLORE | OPERATE,
    "coordinator": STEP | GENERATE | READ_MODELS,
    "drafter": DRAFT,
    "verifier": set(),
}
"""Role -> RPCs. A role or an RPC that is not here fails a test."""
