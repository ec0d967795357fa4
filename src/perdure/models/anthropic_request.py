"""Requests to the Messages API: the settings before the turns, and the blocks of the turns.

A *block* is the API's piece of content. What it wants back as it gave it stands in marks:
`perdure:anthropic` on an item or a part holds members of its block, and the items, parts, tools and
annotations whose types begin with `anthropic:` hold a block, tool or citation whole. A
`cache_control` on an item, a part or a tool goes to its block; on the settings, to the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.models.anthropic_settings import settings_members
from perdure.models.body import Body
from perdure.models.content import (
    Lost,
    Media,
    arguments_text,
    extension,
    is_text,
    json_text,
    kept,
    kept_object,
    kept_text,
    legal_id,
    legal_name,
    media_of,
    text_of_media,
)
from perdure.models.losses import Loss
from perdure.models.turns import NO_OUTPUT, Answered, Piece, Turn, Turns, View
from perdure.models.writer import MAKER, REDACTED
from perdure.wire import (
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    Item,
    Message,
    OutputText,
    Part,
    Reasoning,
    Refusal,
    Request,
    TextPart,
    UnknownAnnotation,
    UnknownItem,
    UnknownPart,
    UrlCitation,
    Wire,
    text_of,
)
