"""Context mixing: measures, the forward passes that compute them, and the maps they give."""
