#!/bin/sh
# Builds the control plane of one Kubernetes version and prints the path of the binary.
# Usage: build.sh [1.34|1.35|1.36|1.37]
# The result is kept by the hash of its sources, so a second call returns at once.
set -eu

cd "$(dirname "$0")"

case "${1:-1.37}" in
1.34 | 1.34.4) version=1.34.4 modfile=go.1.34.mod ;;
1.35 | 1.35.4) version=1.35.4 modfile=go.1.35.mod ;;
1.36 | 1.36.3) version=1.36.3 modfile=go.1.36.mod ;;
1.37 | 1.37.2) version=1.37.2 modfile=go.mod ;;
*)
	echo "build.sh: unknown Kubernetes version $1 (known: 1.34, 1.35, 1.36, 1.37)" >&2
	exit 2
	;;
esac

sumfile="${modfile%.mod}.sum"
hash=$(cat ./*.go "$modfile" "$sumfile" | sha256sum | cut -c1-12)
cache="${DRA_CONTROLPLANE_CACHE:-$HOME/.cache/dra-scheduler}"
binary="$cache/controlplane-$version-$hash"

if [ ! -x "$binary" ]; then
	if ! command -v go >/dev/null; then
		echo "build.sh: Go 1.26 or newer is needed to build the control plane" >&2
		exit 2
	fi
	mkdir -p "$cache"
	minor="${version#*.}"
	minor="${minor%%.*}"
	stamp=k8s.io/component-base/version
	echo "building the Kubernetes $version control plane (5 to 8 minutes the first time)" >&2
	# A name of our own until it is whole, so that a broken build is never taken for a binary.
	unfinished="$binary.$$"
	CGO_ENABLED=0 nice go build -modfile="$modfile" -trimpath -o "$unfinished" \
		-ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor" . >&2
	mv "$unfinished" "$binary"
fi
echo "$binary"
