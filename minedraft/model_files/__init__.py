"""Reads the files of a model directory and checks them: they are input from others."""
