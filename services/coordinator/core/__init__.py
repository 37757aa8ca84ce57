"""The scheduling core: decides who steps, with what, and what comes of it. Pure."""
