"""Stage `sbom`: the software bill of materials of the build environment."""
