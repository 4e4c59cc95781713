"""The commands of this room, each of the group ``lab image``."""
