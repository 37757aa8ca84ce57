#!/usr/bin/env bash
# Build the CPU image with buildah, without an engine or a registry, and run it as Kubernetes would:
# read-only root, user 65532. Says why and succeeds where that cannot work (no buildah, not root);
# IMAGE=no skips it. usage: check_image.sh PYTHON OUT_DIRECTORY
set -euo pipefail
python=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)

skip() { echo "image: SKIPPED: $1"; exit 0; }
[ "${IMAGE:-yes}" != no ] || skip 'IMAGE=no'
[ "$(id -u)" = 0 ] || skip 'needs root (chroot isolation); run as root, or build with your own engine'
tools='buildah crun mmdebstrap'
missing=$(for tool in $tools; do command -v "$tool" >/dev/null || printf '%s ' "$tool"; done)
if [ -n "$missing" ]; then
  command -v apt-get >/dev/null || skip "not installed: $missing"
  echo "image: installing $missing"
  # shellcheck disable=SC2086  # a list of words
  { apt-get update -qq && apt-get install -qq --no-install-recommends $missing; } >/dev/null 2>&1 \
    || skip "apt-get could not install $missing"
fi
unshare -m true 2>/dev/null || skip 'mount namespaces are not allowed here'

mkdir -p "$out"
out=$(cd "$out" && pwd)
# Storage of our own leaves the machine's alone. vfs works everywhere but copies whole trees; chroot
# isolation asks nothing of the kernel.
driver=vfs
build() { buildah --root "$out/storage" --runroot "$out/run" --storage-driver "$driver" "$@"; }
cleanup() {
  build umount --all >/dev/null 2>&1 || true
  build rm --all >/dev/null 2>&1 || true
  rm -rf "$out/storage" "$out/run"
}
trap cleanup EXIT
cleanup
mkdir -p "$out/overlay/"{lower,upper,work,all}
if unshare -m mount -t overlay overlay "$out/overlay/all" \
  -o "lowerdir=$out/overlay/lower,upperdir=$out/overlay/upper,workdir=$out/overlay/work" 2>/dev/null
then driver=overlay; fi
rm -rf "$out/overlay"
echo "image: storage driver $driver"

if ! [ -s "$out/rootfs.tar" ]; then
  echo 'image: base of Debian bookworm (2 minutes)'
  mmdebstrap --quiet --variant=minbase --mode=root --include=python3,python3-venv,ca-certificates \
    bookworm "$out/rootfs.part" --format=tar
  mv "$out/rootfs.part" "$out/rootfs.tar"
fi
base=$(build from scratch)
build add --quiet "$base" "$out/rootfs.tar" / >/dev/null
build commit --quiet "$base" localhost/minedraft-base >/dev/null
build rm "$base" >/dev/null

echo 'image: wheels'
mkdir -p "$out/context"
"$here/wheelhouse.sh" "$python" cpu "$out/context/wheels"
echo 'image: build'
build bud --quiet --isolation chroot --network host --layers=false \
  --build-arg BASE=localhost/minedraft-base --build-arg EXTRAS=worker \
  --file "$here/Containerfile" --tag localhost/minedraft:cpu "$out/context" >/dev/null
echo "image: user $(build inspect --format '{{.OCIv1.Config.User}}' localhost/minedraft:cpu)," \
  "entry point $(build inspect --format '{{.OCIv1.Config.Entrypoint}}' localhost/minedraft:cpu)"

container=$(build from localhost/minedraft:cpu)
root=$(build mount "$container")
echo "image: $(du -sm "$root/opt/minedraft" | cut -f1) MB on top of the base"
# Everything below runs in a mount namespace of its own; it ends with the shell.
unshare -m "$here/smoke.sh" "$root"
