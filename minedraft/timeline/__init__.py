"""Pictures and traces of what the two devices did, made from spans."""
