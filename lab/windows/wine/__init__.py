"""Windows nodes without Windows: Kubernetes' own Windows programs on Wine, in system containers."""
