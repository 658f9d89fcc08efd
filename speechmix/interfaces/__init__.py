"""The command line and the app in the browser."""
