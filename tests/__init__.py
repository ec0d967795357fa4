"""The tests. Importable as a package, so that they can share what they need."""
