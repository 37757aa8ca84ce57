"""Fetches demo models by hash, converts them once and caches them (needs the worker extra)."""
