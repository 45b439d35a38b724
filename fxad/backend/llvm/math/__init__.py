"""Elementary functions as vector arithmetic: float32, float64, integer division."""
