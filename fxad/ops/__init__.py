"""Operations: one record per op, holding everything the system knows about it."""
