"""Windows nodes of a cluster: what each must become, and the steps that get it there."""
