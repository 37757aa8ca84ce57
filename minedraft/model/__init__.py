"""Loads, runs and samples models with torch, for drafter and verifier. Knows no service."""
