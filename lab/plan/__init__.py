"""Plan a scenario: decide every address, MAC, name and placement."""
