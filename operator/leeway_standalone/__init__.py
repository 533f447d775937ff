"""A whole Kubernetes on one Linux machine, without root, cluster or containers."""
