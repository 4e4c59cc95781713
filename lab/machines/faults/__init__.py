"""The faults of this room: what a cluster's add-ons and programs can have."""
