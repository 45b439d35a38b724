"""Recording: arrays, tracers, levels and staging of Python functions into Programs."""
