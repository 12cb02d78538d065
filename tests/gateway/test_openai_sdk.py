#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's own SDK, unchanged, against a gateway: test_openai_sdk.py PORT"""
import asyncio
import json
import sys

import openai

base = f"http://127.0.0.1:{sys.argv[1]}/v1"
client = openai.OpenAI(base_url=base, api_key="secret", max_retries=0)
HI = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "which port?"}]
DOCUMENTS = {"documents": [{"title": "ssh", "text": "port 22"}, "cron runs jobs"]}


def models():
    names = [m.id for m in client.models.list()]
    assert names == ["tiny"], names
    assert client.models.retrieve("tiny").owned_by == "kvasir"


def chat():
    answers = [client.chat.completions.create(
        model="tiny", messages=HI, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2,
        extra_body=dict(DOCUMENTS, ignore_eos=True)) for _ in range(2)]
    one, two = answers
    assert one.choices[0].message.content == two.choices[0].message.content
    assert one.choices[0].finish_reason == "length"
    assert len(one.choices[0].logprobs.content) == 8
    assert len(one.choices[0].logprobs.content[0].top_logprobs) == 2
    assert one.usage.completion_tokens == 8
    assert one.usage.total_tokens == one.usage.prompt_tokens + 8
    assert two.usage.prompt_tokens_details.cached_tokens > 0
    assert [d["reason"] for d in two.usage.documents] == ["hit", "hit"], two.usage.documents


def stream():
    whole = client.chat.completions.create(model="tiny", messages=HI, max_tokens=16, temperature=0,
                                           extra_body={"ignore_eos": True})
    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(
            model="tiny", messages=HI, max_tokens=16, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content
    assert finish == "length" and usage.completion_tokens == 16


def completions():
    answer = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=4, seed=3,
                                       logprobs=1, extra_body={"ignore_eos": True})
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert len(answer.choices[0].logprobs.tokens) == 4


def json_schema():
    schema = {"type": "object", "properties": {"port": {"type": "integer"},
                                               "kind": {"enum": ["tcp", "udp"]}},
              "required": ["port", "kind"], "additionalProperties": False}
    answer = client.chat.completions.create(
        model="tiny", messages=HI, max_tokens=200, temperature=1, seed=1,
        response_format={"type": "json_schema",
                         "json_schema": {"name": "p", "schema": schema, "strict": True}})
    value = json.loads(answer.choices[0].message.content)
    assert isinstance(value["port"], int) and value["kind"] in ("tcp", "udp"), value


def errors():
    def refused(kind, code, **arguments):
        try:
            client.chat.completions.create(**dict(dict(model="tiny", messages=HI), **arguments))
        except kind as error:
            assert error.code == code, (error.code, code)
            return error
        raise AssertionError(f"no {kind}")

    refused(openai.NotFoundError, "model_not_found", model="gpt-4o")
    assert refused(openai.BadRequestError, None, temperature=7).param == "temperature"
    missing = refused(openai.NotFoundError, "document_not_found",
                      extra_body={"documents": [{"id": "nobody"}]})
    assert missing.param == "documents[0]", missing.param
    try:
        openai.OpenAI(base_url=base, api_key="wrong", max_retries=0).models.list()
        raise AssertionError("a wrong key was taken")
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key"


async def many():
    async with openai.AsyncOpenAI(base_url=base, api_key="secret", max_retries=0) as own:
        async def one(i):
            usage, finish = None, None
            async for chunk in await own.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": f"question {i}"}],
                    max_tokens=8, stream=True, stream_options={"include_usage": True},
                    extra_body=dict(DOCUMENTS, ignore_eos=True)):
                usage = chunk.usage or usage
                finish = chunk.choices[0].finish_reason or finish if chunk.choices else finish
            return finish, usage.completion_tokens  # the text may be empty: all eight may be control tokens
        assert set(await asyncio.gather(*(one(i) for i in range(32)))) == {("length", 8)}


for check in (models, chat, stream, completions, json_schema, errors):
    check()
    print("ok", check.__name__)
asyncio.run(many())
print("ok many; openai", openai.__version__)
