"""Where a lab's machines come from: one package per provider."""
