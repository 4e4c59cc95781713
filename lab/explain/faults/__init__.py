"""What can be broken on purpose: one fault a module, found by the registry."""
