"""The token link: draft packets from the drafter to the verifier, over four transports."""
