"""Facts about machines: a node's answers to queries, in the Intent's terms."""
