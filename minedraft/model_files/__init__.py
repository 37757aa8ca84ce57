"""The files of a model directory: input from somebody else, checked as it is read."""
