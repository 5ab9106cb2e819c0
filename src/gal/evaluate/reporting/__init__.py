"""Reports: facts are gathered (``facts``), put into charts (``charts``), drawn and written (``page``)."""
