#!/usr/bin/env bash
# Build the documentation as a static site in site/. Its pages load nothing from the network; the
# search needs a web server, for example python3 -m http.server --directory site.
#
#   bash scripts/docs.sh [--out FOLDER]
#
# The environment is .venv, or $SUDOCOT_VENV; the extra `docs` is installed into it.
set -euo pipefail

out=
if (($#)); then
    [[ $# == 2 && $1 == --out ]] || { echo "usage: bash scripts/docs.sh [--out FOLDER]" >&2; exit 2; }
    out=$2
    [[ $out == /* ]] || out=$PWD/$out
fi
cd "$(dirname "$0")/.."
venv=${SUDOCOT_VENV:-$PWD/.venv}
[[ -n ${SUDOCOT_VENV:-} ]] || bash scripts/venv.sh "$venv" all,docs
export PATH="$venv/bin:$PATH"
python -c 'import mkdocs, material, mkdocstrings' 2>/dev/null || pip install --quiet --editable '.[docs]'

# Sources of the site: the pages of docs/, generated reference pages, and the demos.
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
cp -r docs "$pages/docs"
sed "s|^docs_dir: .*|docs_dir: $pages/docs|" mkdocs.yml >"$pages/mkdocs.yml"
python -m scripts.cli.reference >"$pages/docs/reference/commands.md"
sudocot trace '4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......' \
    --out "$pages/docs/demos/search-9x9.html"
sudocot trace '1...|..3.|.4..|...2' --model compiled-4x4 --out "$pages/docs/demos/registers-4x4.html"
sudocot compile show binary-addition 101+11 --out "$pages/docs/demos/steps-addition.html"
PYTHONPATH=$PWD mkdocs build --quiet --config-file "$pages/mkdocs.yml" --site-dir "${out:-$PWD/site}"
echo "site in ${out:-$PWD/site}/index.html"
