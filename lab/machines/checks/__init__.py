"""The checks of this room: programs and objects of a cluster."""
