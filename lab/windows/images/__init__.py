"""Windows Server from Microsoft's installation medium to a golden image, unattended."""
