# SPDX-License-Identifier: Apache-2.0
"""Part of check-layers: the built objects of a target."""


def objects_of(build, folder, target):
    """The objects of a target of this folder whose source is there: a file that has moved leaves
    its object behind."""
    top = build / folder / f"CMakeFiles/{target}.dir"
    for path in sorted(top.rglob("*.o")):
        name = path.relative_to(top).as_posix()
        if (build.parent / folder / name[:-2].replace("__/", "../")).is_file():
            yield path, name
