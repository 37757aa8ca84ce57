"""Draws pictures and traces of both devices from spans."""
