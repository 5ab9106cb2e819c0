"""Organizations that NVFlare connects: an executor at each site, a controller for the label holder."""
