"""The hops of a packet, each judged by itself."""
