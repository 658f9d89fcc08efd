"""Model cards: what finished runs say of one model, and a page that compares many cards."""
