"""Level 0: dtypes, promotion, types, pytrees, errors and configuration. Imports nothing of ours."""
