"""The nouns that all parts of Leeway share."""
