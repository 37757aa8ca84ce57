"""Make a drafter out of a target: some of its layers, trained on its own answers."""
