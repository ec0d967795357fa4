"""Benchmarks: perdure beside a bare counterpart, in one run. `make bench`."""
