"""Reports: facts in sections (``simulated``, ``learned``), written as one page (``writing``)."""
