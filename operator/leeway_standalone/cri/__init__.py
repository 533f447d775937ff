"""The Container Runtime Interface, served by running containers as local processes."""
