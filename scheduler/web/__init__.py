"""HTTP beside the webhooks: servers, health and metrics."""
