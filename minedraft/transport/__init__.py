"""gRPC: the only part of MineDraft that knows protobuf, channels and status codes."""
