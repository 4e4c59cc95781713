"""One probe followed from hop to hop by the packets that were taken down. Pure."""
