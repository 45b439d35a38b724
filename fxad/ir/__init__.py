"""The two intermediate representations: `program` (typed equations) and `kernel` (loop nests)."""
