#!/usr/bin/env bash
# Installs the packages of hack/packages.txt, or of the lists that are given, that this machine lacks. The services that some of them bring
# (Open vSwitch, containerd) are not started: every sandbox node runs its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
while read -r package; do
  installed "$package" || missing+=("$package")
done < <(grep -hv '^#' "${@:-packages.txt}")
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "deps: these packages are missing and only root can install them: ${missing[*]}" >&2
  exit 1
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
echo "deps: installing ${missing[*]}"
apt-get -q -o Acquire::Retries=3 update
apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}"
