"""The nouns of both clusters, and the values that they are made of."""
