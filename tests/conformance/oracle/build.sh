#!/bin/sh
# Builds the oracle programs into the cache and prints the path of the one asked for.
#   build.sh            the allocator and CEL program (oracle)
#   build.sh validate   the API validation program, a module of its own: it needs k8s.io/kubernetes
# The name holds a hash of the sources, so an unchanged tree builds nothing.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
program=${1:-oracle}
case $program in
oracle) source=$here ;;
validate) source=$here/validate ;;
*)
    echo "usage: build.sh [oracle|validate]" >&2
    exit 2
    ;;
esac

cache=${DRA_CONTROLPLANE_CACHE:-${HOME:?}/.cache/dra-scheduler}
hash=$(cat "$source"/*.go "$source"/go.mod "$source"/go.sum | sha256sum | cut -c1-16)
binary=$cache/$program-$hash
if [ ! -x "$binary" ]; then
    mkdir -p "$cache"
    temporary=$binary.$$
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off go build -trimpath -o "$temporary" .) >&2
    mv "$temporary" "$binary"
fi
echo "$binary"
