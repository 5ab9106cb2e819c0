"""Print what pip is set to (where packages come from) as variables of uv, for a shell to read.

Settings stay out of command lines, which logs show: an address may have a password in it.
"""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
SECTIONS = ("global", "install", ":env:")
"""The later ones count more, as they do for pip."""


def main() -> None:
    """A line for each setting that there is; and of all places the best version counts, as for pip."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = {}
    for line in said.stdout.splitlines():
        key, _, value = line.partition("=")
        found[key] = " ".join(ast.literal_eval(value).split())
    for name, variable in NAMES.items():
        values = [found[f"{section}.{name}"] for section in SECTIONS if f"{section}.{name}" in found]
        if values:
            text = values[-1].replace(" ", ",") if name == "find-links" else values[-1]
            print(f"export {variable}={shlex.quote(text)}")
    print("export UV_INDEX_STRATEGY=unsafe-best-match")


if __name__ == "__main__":
    main()
