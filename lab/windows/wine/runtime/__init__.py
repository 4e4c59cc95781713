"""The container runtime of a Wine node: Linux's containerd behind a CRI that speaks of Windows."""
