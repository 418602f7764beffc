#!/usr/bin/env bash
# For a person with Docker, kind and kubectl: a cluster, our image in it, and the tests that fit any cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${KIND_CLUSTER:-dra-scheduler}
image=${IMAGE:-dra-scheduler:0.1.0}
for tool in docker kind kubectl; do
  command -v "$tool" >/dev/null || { echo "kind-e2e needs $tool" >&2; exit 2; }
done
mkdir -p /tmp/dra-scheduler-kind/worker/cdi /tmp/dra-scheduler-kind/worker2/cdi
if ! kind get clusters | grep -qx "$name"; then
  kind create cluster --name "$name" --config kind-config.yaml ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"}
fi
docker build --tag "$image" .
kind load docker-image --name "$name" "$image"
kubeconfig=$(mktemp)
trap 'rm -f "$kubeconfig"' EXIT
kind get kubeconfig --name "$name" >"$kubeconfig"
kubectl --kubeconfig "$kubeconfig" apply --kustomize deploy/base
kubectl --kubeconfig "$kubeconfig" --namespace dra-scheduler rollout status deployment/dra-scheduler --timeout 180s
KUBECONFIG="$kubeconfig" make e2e
