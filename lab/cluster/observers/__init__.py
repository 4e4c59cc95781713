"""What the nodes of a running cluster show of themselves, compared with the Intent."""
