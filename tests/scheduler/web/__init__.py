"""HTTP beside the webhooks."""
