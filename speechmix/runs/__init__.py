"""Many clips through models: results that are stored, resumed, shared among workers and merged."""
