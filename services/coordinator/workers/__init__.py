"""Keeps the workers connected: sessions, links, swaps."""
