"""Runs a benchmark by name, or lists them; a benchmark ends with one JSON object as the last line of its stdout."""

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    path_of = {path.stem: path for path in sorted(HERE.glob("[!_]*.py"))}
    if len(sys.argv) == 1:
        for name, path in path_of.items():
            summary = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
            print(f"make bench NAME={name:16} {summary}")
    elif sys.argv[1] in path_of:
        sys.argv = sys.argv[1:]
        sys.path.append(str(HERE.parent / "support"))
        runpy.run_path(str(path_of[sys.argv[0]]), run_name="__main__")
    else:
        sys.exit(f"No benchmark is called {sys.argv[1]!r}: there are {', '.join(path_of) or 'none yet'}.")


main()
