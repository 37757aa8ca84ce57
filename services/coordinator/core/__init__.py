"""The scheduling core: plans the steps of requests and applies their results. Pure."""
