"""Test quickly whether the Hugging Face hub can be reached.

In: a hub id. Out: options of ``from_pretrained`` that keep it to what was downloaded before, where
the hub does not answer.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ...files.json_files import JsonObject

_TIMEOUT_SECONDS = 6.0  # to answer; a slow connection takes one or two


def hub_options(source: str) -> JsonObject:
    """Return options of ``from_pretrained`` for a folder or hub id; none for a folder and while the
    hub answers."""
    return {"local_files_only": True} if hub_problem(source) else {}


def hub_problem(source: str) -> str:
    """Return why the hub cannot serve a model, as a message says it; empty if it can, or need not
    be."""
    from huggingface_hub import constants

    if Path(source).is_dir() or constants.HF_HUB_OFFLINE:
        return ""
    reason = _explain_unreachable(constants.ENDPOINT)
    return reason and (
        f"{constants.ENDPOINT} does not answer ({reason}), and {source!r} was not downloaded "
        "before: connect to the network, "
        "or give the folder of a model"
    )


@cache
def _explain_unreachable(endpoint: str) -> str:
    """Return why an address does not answer a request like the hub client's (proxies,
    certificates); empty if it does."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=_TIMEOUT_SECONDS)
    except Exception as error:  # of whichever HTTP library the client uses
        return f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"[:200]
    return ""
