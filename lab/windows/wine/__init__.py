"""Windows nodes without Windows: Kubernetes' own Windows programs on Wine, in system containers."""

IMAGE = "debian-13-wine"
"""The Linux image of every Wine node."""
