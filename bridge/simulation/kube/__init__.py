"""The simulated Kubernetes."""
