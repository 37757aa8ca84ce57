"""What drafter and verifier processes share besides the model: life, identity, stopwatch."""
