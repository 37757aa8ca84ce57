#!/usr/bin/env bash
# Run the tree of an image read-only, as user 65532. In a mount namespace of its own: it remounts.
# usage: unshare -m smoke.sh ROOT
set -euo pipefail
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t proc proc "$root/proc" 2>/dev/null || true
inside() {
  chroot --userspec=65532:65532 "$root" /usr/bin/env -i PATH=/opt/minedraft/bin:/usr/bin:/bin \
    HOME=/tmp HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 COLUMNS=100 "$@"
}
expect() { # what it should print, then the command
  local wanted=$1 got
  shift
  got=$("$@" 2>&1) || { echo "smoke: FAILED: $*: $got" >&2; exit 1; }
  case $got in
    *"$wanted"*) echo "smoke: ok: ${*:2}" ;;
    *) echo "smoke: FAILED: $*: wanted '$wanted', got: $got" >&2; exit 1 ;;
  esac
}
refuse() {
  if "$@" 2>/dev/null; then echo "smoke: FAILED: $* should not work" >&2; exit 1; fi
  echo "smoke: ok: refused: ${*:2}"
}
expect uid=65532 inside id
refuse inside touch /x
refuse inside touch /opt/minedraft/x
expect '' inside touch /tmp/x
expect '' inside python -c 'import minedraft, torch, transformers, grpc'
expect health-listen inside minedraft coordinator --help
expect link-bind-host inside minedraft drafter --help
expect link-bind-host inside minedraft verifier --help
# Refused for want of a model, by our own words: the worker's imports all went well.
got=$(inside minedraft verifier --model=/models/none 2>&1 || true)
case $got in
  *Traceback*|'') echo "smoke: FAILED: verifier: $got" >&2; exit 1 ;;
  *) echo "smoke: ok: verifier without a model says: $(echo "$got" | tail -1 | cut -c1-90)" ;;
esac
