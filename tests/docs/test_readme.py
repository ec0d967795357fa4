"""The first example of the README needs a key and a provider, so a server on loopback is both."""

from __future__ import annotations

import asyncio

import pytest

from perdure.testing import LoopbackServer, ScriptedModel, call
from tests.test_docs import BLOCK, ROOT, Snippet, run


async def test_the_first_example_runs_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = BLOCK.search((ROOT / "README.md").read_text("utf-8"))
    assert block is not None
    example = Snippet("README.md", 1, block["code"])
    model = ScriptedModel([call("weather", {"city": "Oslo"}), "No, it is dry."])
    async with LoopbackServer(model) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        await asyncio.to_thread(run, example)
    assert capsys.readouterr().out == "No, it is dry.\n"
    assert model.requests[0].settings.model == "gpt-5-mini"
    assert model.requests[1].input[-1].text == "18 degrees and dry in Oslo"  # type: ignore[union-attr]
