# What ./run and ./mutants share: where to build, with what flags, against which loom. To be sourced.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
invoked_in=$PWD
me=$(basename "$0")

stop() {
    echo "$me: $*" >&2
    exit 1
}

# The comment at the head of a script is its help.
usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$here/$me"
}

# Where to build (`target`), and a folder that goes with the script (`scratch`).
prepare_folders() {
    target=${CARGO_TARGET_DIR:-$here/target}
    [[ $target == /* ]] || target=$invoked_in/$target
    export CARGO_TARGET_DIR=$target
    mkdir -p "$target"
    scratch=$(mktemp -d "$target/loom-$me.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
}

# The flags of tiers 1 and 2, or with `epochs` of tier 3. Nothing of the caller's may change what is built or how far loom explores.
use_flags() {
    unset CARGO_BUILD_RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
    export RUSTFLAGS="--cfg ebbtide_loom"
    if [[ $1 == epochs ]]; then
        RUSTFLAGS+=" --cfg ebbtide_epoch"
    fi
}

# Where cargo keeps loom's source, as published.
find_loom() {
    cargo fetch --locked --quiet
    cargo metadata --locked --offline --format-version 1 |
        grep -o '"manifest_path":"[^"]*/loom-[0-9.]*/Cargo.toml"' |
        sed 's/^"manifest_path":"//; s/\/Cargo.toml"$//' | sort -u
}

# Makes the patched copy, unless it is there already; sets `patched`, and `override` for cargo.
prepare_loom() {
    local source version patch stamp
    source=$(cd "$here" && find_loom)
    [[ -d $source ]] || stop "cargo does not know loom's source"
    version=${source##*/loom-}
    patch=$here/patches/loom-$version.patch
    [[ -f $patch ]] || stop "no patch for loom $version in patches/"
    patched=$target/patched-loom-$version
    # A path override: the lock file stays as it is, the source is the copy's.
    override=(--config "paths=[\"$patched\"]")
    stamp="$source $(cksum <"$patch")"
    if [[ -f $patched/.stamp && $(<"$patched/.stamp") == "$stamp" ]]; then
        return
    fi
    cp -R "$source" "$scratch/loom"
    chmod -R u+w "$scratch/loom"
    # The ceiling keeps git from taking the copy for a part of this repository.
    (cd "$scratch/loom" && GIT_CEILING_DIRECTORIES=$scratch git apply "$patch" &&
        GIT_CEILING_DIRECTORIES=$scratch git apply --reverse --check "$patch")
    echo "$stamp" >"$scratch/loom/.stamp"
    rm -rf "$patched"
    mv "$scratch/loom" "$patched"
}

# cargo test with the flags in force; give it cargo's own arguments, then `--` and the test's.
loom_test() {
    cargo test --locked --quiet ${override[@]+"${override[@]}"} "$@"
}
