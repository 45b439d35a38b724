"""Rewrites of Programs that keep their meaning: inline, dce, cse, fold, algebra."""
