"""The arithmetic of a forward pass behind one interface, by several makers. Knows no model."""
