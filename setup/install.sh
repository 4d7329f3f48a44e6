#!/usr/bin/env bash
# Installs the Debian packages of setup/packages.txt that are missing. Works as root, and as a user with sudo.
# Says which package could not be had; exit 1 then.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t wanted < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' setup/packages.txt)
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "motley: this set-up needs Debian's apt-get; missing packages: ${missing[*]}" >&2; exit 1; }
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "motley: run as root, or install sudo; missing packages: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "motley: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q >/dev/null || echo "motley: apt-get update failed; trying with the lists at hand" >&2
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; then
  failed=()
  for package in "${missing[@]}"; do
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" >/dev/null 2>&1 || failed+=("$package")
  done
  [ ${#failed[@]} -eq 0 ] || { echo "motley: could not install: ${failed[*]}" >&2; exit 1; }
fi
