"""What an iteration does beside its matrix products, in several ways that give the same: torch, C++, Triton."""
