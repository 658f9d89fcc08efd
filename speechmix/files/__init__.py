"""How anything is read and written: whole or not at all, by one writer, under names that differ,
hashed, checked."""
