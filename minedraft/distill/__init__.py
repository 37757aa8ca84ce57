"""Makes a drafter from some layers of a target, trained on the target's own answers."""
