"""From text to token ids and back: processes, templates, detokenizer, stop strings."""
