"""Why a model wrote a word: what each measure claims for it, and what becomes of it when the claim
is put to the test."""
