"""NVFlare as a carrier: an executor per site, and the label holder's controller."""
