"""The Host Networking Service of a Wine node: what programs ask of it, as Linux devices."""
