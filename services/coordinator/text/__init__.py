"""Turns text into token ids and back: processes, templates, detokenizer, stop strings."""
