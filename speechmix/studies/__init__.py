"""Studies from data to a page: French homophony, agreement."""
