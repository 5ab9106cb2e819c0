"""What ``benchmarks/nodes.py`` and other scripts about nodes measure on and with."""
