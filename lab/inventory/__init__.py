"""What labs may use: hypervisors, storage, image sources, mirrors, proxies, secrets."""
