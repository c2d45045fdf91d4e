#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks manifests of Kubeflow's kinds against kubeflow.yaml: kubeflow.py MANIFEST...

A field that the schema does not name is an error, too: the API server would drop it in silence.
Needs PyYAML and jsonschema."""

import sys
from pathlib import Path

import jsonschema
import yaml


def closed(schema):
    """The same, without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        schema["additionalProperties"] = False
    return schema


def main():
    schemas = yaml.safe_load((Path(__file__).parent / "kubeflow.yaml").read_text())
    wrong = 0
    for path in sys.argv[1:]:
        for found in yaml.safe_load_all(Path(path).read_text()):
            kind = f"{found['apiVersion']} {found['kind']}"
            if kind not in schemas:
                print(f"{path}: {kind} has no schema here")
                wrong += 1
                continue
            for error in jsonschema.Draft7Validator(closed(schemas[kind])).iter_errors(found):
                print(f"{path}: {error.json_path}: {error.message}")
                wrong += 1
    return int(wrong > 0 or len(sys.argv) < 2)


if __name__ == "__main__":
    sys.exit(main())
