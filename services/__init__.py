"""The three roles. Import them as `minedraft.services.<role>`; they never import each other."""
