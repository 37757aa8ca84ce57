"""Draft packets of a token link, and the order that describes a link. Pure."""
