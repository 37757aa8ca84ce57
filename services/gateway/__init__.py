"""The gateway: an OpenAI-compatible HTTP server, a client of the coordinator. It keeps no state."""
