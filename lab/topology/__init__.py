"""Plan to Intent: what the topologies share, and the limits that follow from each."""
