"""The client SDK: `Client` and `SyncClient`. Loads no torch."""

from minedraft.client.client import Client
from minedraft.client.resume import NO_RETRIES, RetryPolicy
from minedraft.client.stream import GenerationStream
from minedraft.client.sync import SyncClient

__all__ = ["NO_RETRIES", "Client", "GenerationStream", "RetryPolicy", "SyncClient"]
