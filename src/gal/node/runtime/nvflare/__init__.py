"""NVFlare as a carrier: an executor at each site, and a controller for the label holder."""
