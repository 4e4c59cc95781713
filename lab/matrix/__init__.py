"""The connectivity matrix: cells, expectations, probing and verdicts."""
