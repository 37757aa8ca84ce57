"""Who may listen, connect and call, and what may be opened or written down. Knows no service."""

from minedraft.security.config import SecurityConfig

__all__ = ["SecurityConfig"]
