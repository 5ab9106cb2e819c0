"""The paper's evaluation as data: a TOML file per table row, a runner, tables, figures.

Start reading at ``specs`` (what a table is), ``cells`` (one run) and ``runner`` (all of them). Nothing is
imported here: deep runs are done on machines that lack what the tables need.
"""
