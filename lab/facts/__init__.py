"""Facts about machines: what a node answers when it is asked, read into the Intent's terms."""
