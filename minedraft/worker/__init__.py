"""What drafter and verifier processes share besides the model: identity, device, stopwatch."""
