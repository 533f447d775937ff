"""Addresses inside a standalone. They exist only in its own network namespace, so every standalone has the same."""

NODE_NAME = "leeway"
NODE_ADDRESS = "10.244.0.1"
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
PROMETHEUS_SERVICE = "10.96.0.90"
API_PORT = 6443
ETCD_PORT = 2379
PROMETHEUS_PORT = 9090
CLUSTER_DOMAIN = "cluster.local"
API_URL = f"https://{NODE_ADDRESS}:{API_PORT}"
