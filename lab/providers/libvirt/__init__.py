"""Virtual machines on one or many libvirt hypervisors."""
