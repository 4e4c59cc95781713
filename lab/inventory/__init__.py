"""The inventory: hypervisors, storage, image sources, mirrors, proxies, secrets."""
