"""The kube-scheduler extender: webhooks over one engine."""
