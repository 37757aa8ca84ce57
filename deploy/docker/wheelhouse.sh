#!/usr/bin/env bash
# Collect the wheels of one image: ours, built here, and what it needs, pinned by constraints/.
# The image build itself then needs no index. usage: wheelhouse.sh PYTHON STACK DIRECTORY
set -euo pipefail
python=$1 stack=$2 directory=$3
cd "$(dirname "$0")/../.."
case $stack in
  core) constraints=core extras= ;;
  cpu) constraints=cpu extras=worker ;;
  cu12) constraints=cu12 extras=cu12 ;;
  *) echo "wheelhouse: STACK is core, cpu or cu12, not '$stack'" >&2; exit 2 ;;
esac
mkdir -p "$directory"
rm -f "$directory"/minedraft-*.whl
"$python" -m pip wheel -qq --no-deps --wheel-dir "$directory" .
wheel=$(echo "$directory"/minedraft-*.whl)
case $wheel in *-none-any.whl)
  echo 'wheelhouse: no C compiler here: workers of this image will run the torch kernels, slower' ;;
esac
"$python" -m pip download -qq --only-binary :all: --find-links "$directory" \
  --dest "$directory" --constraint "constraints/$constraints.txt" "$wheel${extras:+[$extras]}"
"$python" deploy/docker/check_wheels.py "$directory"
echo "wheelhouse: $(find "$directory" -name '*.whl' | wc -l) wheels in $directory"
