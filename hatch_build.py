"""The compiled core: extension modules made by mypyc of the files that ember_ml/compiled.py lists.

    python hatch_build.py           compile in place, beside the sources under src/
    python hatch_build.py --clean   remove what that made

Hatchling calls the hook at the end when it builds a wheel. Where no C compiler is found, or the
files do not compile, the wheel holds the sources alone, which run as they are;
EMBER_ML_BUILD=compiled makes that an error, EMBER_ML_BUILD=pure asks for it. An editable install
stays as it is.

hatch-mypyc does most of this, but fails where there is no compiler, and follows every import into
packages that are not there when a wheel is built.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, where hatchling is not installed
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "src"
SUFFIXES = ("*.so", "*.pyd")

# The files are checked by `mypy` as a whole; here only their own types matter. Whatever they
# import is Any, so that no engine has to be installed. The decorator of native classes is read.
CONFIG = """\
[mypy]
follow_imports = skip
[mypy-ember_ml.compiled]
follow_imports = normal
"""
# Whether an operand is a Tensor, which mypyc asks four times an op, is asked of its class and the
# base of that first: Python's own answer is a walk through all bases.
HEADER = """\
#pragma once
#include <Python.h>

static inline int is_subclass(PyTypeObject *cls, PyTypeObject *wanted) {
    return cls == wanted || cls->tp_base == wanted || PyType_IsSubtype(cls, wanted);
}
static inline int is_instance(PyObject *object, PyObject *wanted) {
    return Py_TYPE(object) == (PyTypeObject *)wanted ||
        Py_TYPE(object)->tp_base == (PyTypeObject *)wanted || PyObject_IsInstance(object, wanted);
}
#undef PyObject_TypeCheck
#define PyObject_TypeCheck(object, wanted) \\
    is_subclass(Py_TYPE((PyObject *)(object)), (PyTypeObject *)(wanted))
#define PyObject_IsInstance(object, wanted) is_instance(object, wanted)
"""
# Calls into Python without a detour, functions that do not share lines of the cache, and names that
# no other library sees, so that functions become parts of those that call them: some twenty
# nanoseconds of an op's four hundred.
FLAGS = (
    ["-fno-plt", "-falign-functions=64", "-fvisibility=hidden"] if sys.platform == "linux" else []
)


def core_files() -> list[str]:
    """The files of the core, as paths below src/; read without importing the package."""
    text = (SOURCES / "ember_ml" / "compiled.py").read_text(encoding="utf-8")
    listed = re.search(r"^MODULES: Final = \((.*?)^\)", text, re.M | re.S)
    if listed is None:
        raise ValueError("src/ember_ml/compiled.py has no MODULES")
    return [name.replace(".", "/") + ".py" for name in re.findall(r'"([\w.]+)"', listed[1])]


def has_compiler() -> bool:
    """True where a C compiler is at hand."""
    if sys.platform == "win32":
        return True  # setuptools looks for it in the registry, and says where there is none
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(shlex.split(command)[0]) is not None


def compile_core(target: Path) -> list[Path]:
    """Compile the core into a folder; gives the extension modules, which lie as in a package."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "mypy.ini").write_text(CONFIG, encoding="utf-8")
        header = folder / "questions.h"
        header.write_text(HEADER, encoding="utf-8")
        # Paths below src/ are what tracebacks show, and what Python finds there from sys.path.
        os.chdir(SOURCES)
        try:
            extensions = mypycify(
                [f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={folder}", *core_files()],
                opt_level="3",
                debug_level="0",
                group_name="ember_ml",
                target_dir=str(folder / "c"),
            )
            flags = [*FLAGS, *(["-include", str(header)] if sys.platform != "win32" else [])]
            for extension in extensions:  # whose arguments are one list
                extension.extra_compile_args = [*extension.extra_compile_args, *flags]
            command: Any = Distribution(
                {"name": "ember_ml", "ext_modules": extensions}
            ).get_command_obj("build_ext")
            command.build_lib = str(target)
            command.build_temp = str(folder / "objects")
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(before)
    return sorted(path for suffix in SUFFIXES for path in target.rglob(suffix))


def in_place() -> list[Path]:
    """The extension modules that lie beside the sources."""
    return sorted(path for suffix in SUFFIXES for path in SOURCES.rglob(suffix))


class CoreBuildHook(BuildHookInterface):  # type: ignore[misc,valid-type]  # hatchling may be missing
    """Puts the compiled core into wheels."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the core, where that is asked for or possible."""
        wanted = os.environ.get("EMBER_ML_BUILD", "")
        if wanted not in ("", "pure", "compiled"):
            raise ValueError(f"EMBER_ML_BUILD is '{wanted}'; it takes 'pure' or 'compiled'")
        if self.target_name != "wheel" or version != "standard" or wanted == "pure":
            return
        if not has_compiler() and wanted != "compiled":
            self.app.display_warning("no C compiler found: ember_ml is built without compiled core")
            return
        self._folder = tempfile.TemporaryDirectory()
        target = Path(self._folder.name)
        try:
            made = compile_core(target)
        # mypyc ends the process where a file has errors, setuptools has a dozen classes of its own.
        except (Exception, SystemExit) as error:
            if wanted == "compiled":
                raise
            self.app.display_warning(f"the core does not compile here, and runs as it is: {error}")
            return
        for path in made:
            build_data["force_include"][str(path)] = path.relative_to(target).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, once it is in the wheel."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


def main() -> None:
    """Compile in place, or remove what that made."""
    for path in in_place():
        path.unlink()
    if sys.argv[1:] == ["--clean"]:
        return
    if sys.argv[1:]:
        sys.exit(f"hatch_build.py takes --clean or nothing, not {' '.join(sys.argv[1:])}")
    if not has_compiler():
        sys.exit("no C compiler found (CC, or cc): install one, for example gcc or clang")
    with tempfile.TemporaryDirectory() as folder:
        for path in compile_core(Path(folder)):
            place = SOURCES / path.relative_to(folder)
            shutil.copyfile(path, place)
            sys.stdout.write(f"{place.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
