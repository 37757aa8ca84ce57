"""What travels over a token link: packets of drafts, and the order that describes a link. Pure."""
