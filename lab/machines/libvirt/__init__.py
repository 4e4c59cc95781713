"""Virtual machines on one or more libvirt hypervisors."""
