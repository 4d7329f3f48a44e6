#!/usr/bin/env bash
# Puts what `make device-check` runs into one folder: collect.sh BUILD FOLDER. Programs lose their symbols; every library
# that they load, but for those of the C and C++ runtime and of the driver, comes along in lib/. Exit 1 when something
# would be missing there, or when the folder is larger than 60 MiB.
set -euo pipefail
build=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
programs='formats_check fragments_check kernels_check device_bench test_tensor motley'
# The machine's own: glibc, libstdc++, the driver.
system='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda)\.so'

rm -rf "$folder" && mkdir -p "$folder/lib"
for program in $programs; do
  strip -o "$folder/$program" "$build/$program"
  ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}'
done | sort -u | grep -vE "$system" | while read -r name path; do
  case $name in
    # libarchive reads one format by libxml2, which loads ICU and its 30 MB of tables; nothing here looks into them.
    libicudata.so.*) echo "const char icudt${name##*.}_dat[16] = {0};" | cc -shared -Wl,-soname,"$name" -x c - -o "$folder/lib/$name" ;;
    *) strip -o "$folder/lib/$name" "$(readlink -f "$path")" ;;
  esac
done
cp "$here/device_check.sh" "$here/trainer_torch.py" "$here/decoder_torch.py" "$folder"
cp "$here/../../experiments/quickstart.toml" "$here/../../experiments/bitwise.toml" "$folder"

needed=$(for file in "$folder"/* "$folder"/lib/*; do
  readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
done | sort -u | grep -vE "$system" || true)
missing=$(for name in $needed; do [ -e "$folder/lib/$name" ] || echo "$name"; done)
[ -z "$missing" ] || { echo "device-check: not in $folder/lib: $missing" >&2; exit 1; }
size=$(du -sk --apparent-size "$folder" | cut -f1)
echo "device-check: $folder, $((size / 1024)) MiB"
[ "$size" -le $((60 * 1024)) ] || { echo "device-check: more than 60 MiB" >&2; exit 1; }
