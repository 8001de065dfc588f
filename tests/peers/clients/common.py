"""What the clients in Python share: their arguments, the answers of a willing user, and the one line they print."""

import argparse
import asyncio
import json
import sys
import traceback


OPTIONS = {
    "elicit": {"choices": ["accept", "decline"]},
    "progress": {"action": "store_true"},
    "legacy": {"action": "store_true"},
}


def read_arguments(*options):
    """Reads ``URL KEY TOOL [ARGUMENTS] [--elicit accept|decline] [--progress] [--legacy]``.

    ARGUMENTS is a JSON object; left out, the call is made without any. A client names the options it has; the others
    are mistakes.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("key")
    parser.add_argument("tool")
    parser.add_argument("arguments", nargs="?", type=json.loads)
    for option in options:
        parser.add_argument(f"--{option}", **OPTIONS[option])
    return parser.parse_args()


def plain(model):
    """A model of the SDK as the JSON it stands for."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _entered(field):
    if "default" in field:
        return field["default"]
    if "enum" in field:
        return field["enum"][0]
    if "oneOf" in field:
        return field["oneOf"][0]["const"]
    kind = field.get("type")
    if kind == "boolean":
        return True
    if kind in ("integer", "number"):
        return field.get("minimum", 1)
    if kind == "array":
        items = field["items"]
        return [items["enum"][0] if "enum" in items else items["anyOf"][0]["const"]]
    return "entered"


def entered(schema):
    """What a user who agrees to everything would enter into a form."""
    return {name: _entered(field) for name, field in schema.get("properties", {}).items()}


class Progress:
    """Keeps the progress that is told."""

    def __init__(self):
        self.told = []

    async def __call__(self, progress, total, message):
        update = {"progress": progress, "total": total, "message": message}
        self.told.append({name: value for name, value in update.items() if value is not None})


def report(client, version, protocol, tools, result, **more):
    """Prints the outcome; of `more`, what there is."""
    outcome = {"client": client, "version": version, "protocol": protocol, "tools": tools, "result": result}
    outcome.update({name: value for name, value in more.items() if value is not None})
    print(json.dumps(outcome, ensure_ascii=False))


def main(run):
    """Runs a client; what goes wrong is told on stderr and is a failure."""
    try:
        asyncio.run(run())
    except Exception:
        traceback.print_exc()
        sys.exit(1)
