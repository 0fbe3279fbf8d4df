"""Checks before the bridge starts, and the rights in Kubernetes that it needs."""
