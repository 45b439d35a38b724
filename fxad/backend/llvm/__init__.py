"""Native code through llvmlite: text IR, schedules, emitters, thread pool and engine."""
