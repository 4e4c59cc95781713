"""Plan to Intent: one small module per topology, and the limits that follow from it."""
