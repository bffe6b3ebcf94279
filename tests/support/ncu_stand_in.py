"""Writes a program that answers as Nsight Compute does, so that the calls to it can be tested without it."""

import stat
import sys
import textwrap


def install(folder, monkeypatch, *, raw, sass, lines="", unknown=(), suffix=""):
    """Put an ``ncu`` on the PATH that gives these pages; it refuses the ``unknown`` metrics as the real one does."""
    pages = {"raw": raw, "sass": sass, "cuda,sass": lines}
    program = folder / "ncu"
    program.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import json, pathlib, sys
        arguments = sys.argv[1:]
        pages, unknown = json.loads({json_text(pages)}), {list(unknown)!r}
        def value(option):
            return arguments[arguments.index(option) + 1]
        with pathlib.Path({str(folder / "calls")!r}).open("a") as calls:
            calls.write(json.dumps(arguments) + "\\n")
        if "--version" in arguments:
            print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0")
        elif "--import" in arguments:
            assert pathlib.Path(value("--import")).exists()
            page = value("--page")
            sys.stdout.write(pages["raw" if page == "raw" else value("--print-source")])
        else:
            missing = [name for name in unknown if name in value("--metrics").split(",")]
            for name in missing:
                print("==ERROR== Failed to find metric " + name)
            if missing:
                sys.exit(1)
            requests = json.loads(pathlib.Path(arguments[-1]).read_text())
            for index, request in enumerate(requests):
                print("==PROF== Profiling")
                refused = isinstance(request, dict) and not request.get("config", True)
                print(f"warptile-launch {{index}} " + ("UnsupportedError: no" if refused else "ok"))
            pathlib.Path(value("--export") + {suffix!r}).write_text("report")
        """)
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def json_text(value):
    """A Python literal of the JSON of a value."""
    import json

    return repr(json.dumps(value))
