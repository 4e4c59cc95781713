"""Windows nodes of a cluster: what each must be, and the steps that make it so."""
