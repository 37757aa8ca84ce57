from __future__ import annotations

import json

from minedraft import errors


def test_text_goes_to_stdout_and_facts_to_stderr(minedraft):
    result = minedraft("generate", "hi", "--max-tokens", "3", "--seed", "5")
    assert result.exit_code == 0
    assert len(result.stdout.split()) == 3
    assert "length after 3 tokens" in result.stderr
    assert "seed 5" in result.stderr


def test_priority_and_salt_go_with_the_request(minedraft, fake):
    minedraft("generate", "hi", "--priority", "-7", "--cache-salt", "tenant")
    assert (fake.requests[-1].priority, fake.requests[-1].cache_salt) == (-7, "tenant")
    refused = minedraft("generate", "hi", "--priority", "101")
    assert refused.exit_code == 2
    assert "less than or equal to 100" in refused.stderr


def test_streamed_and_whole_text_are_the_same(minedraft):
    streamed = minedraft("generate", "hi", "--max-tokens", "6")
    whole = minedraft("generate", "hi", "--max-tokens", "6", "--no-stream")
    assert streamed.stdout == whole.stdout


def test_a_prompt_is_a_chat_message_if_the_target_has_a_template(minedraft, fake):
    minedraft("generate", "hi", "--system", "be brief")
    assert [m.role for m in fake.requests[-1].messages] == ["system", "user"]
    fake.has_chat_template = False
    minedraft("generate", "hi")
    assert fake.requests[-1].text == "hi"


def test_raw_and_chat_can_be_forced(minedraft, fake):
    minedraft("generate", "hi", "--raw")
    assert fake.requests[-1].text == "hi"
    fake.has_chat_template = False
    minedraft("generate", "hi", "--chat")
    assert fake.requests[-1].messages is not None


def test_a_dash_reads_stdin(minedraft, fake):
    minedraft("generate", "-", "--raw", stdin="from a file\n")
    assert fake.requests[-1].text == "from a file\n"


def test_samples_are_shown_apart(minedraft):
    result = minedraft("generate", "hi", "--n", "2", "--max-tokens", "2")
    assert "sample 0" in result.stdout
    assert "sample 1" in result.stdout


def test_json_is_the_whole_completion(minedraft):
    result = minedraft("generate", "hi", "--json", "--max-tokens", "2")
    document = json.loads(result.stdout)
    assert document["choices"][0]["finish_reason"] == "length"
    assert len(document["choices"][0]["token_ids"]) == 2


def test_markup_in_an_answer_stays_text(minedraft, fake):
    from minedraft.api import Delta, Finished, Started
    from minedraft.types import FinishReason

    fake.events = lambda _request: [
        Started("r", 1, 1),
        Delta(0, (1,), "[bold]x[/bold] :smile: https://a.b"),
        Finished(0, FinishReason.STOP),
    ]
    assert minedraft("generate", "hi").stdout == "[bold]x[/bold] :smile: https://a.b\n"


def test_an_error_is_one_line_and_exit_code_1(minedraft, fake):
    fake.error = errors.InvalidRequestError("prompt: empty", field="prompt")
    result = minedraft("generate", "hi")
    assert result.exit_code == 1
    assert result.stderr == "error: prompt: empty\n"
    assert result.stdout == ""


def test_what_is_waited_for_is_said_once(minedraft, fake):
    from minedraft.api import Delta, Finished, Started
    from minedraft.types import FinishReason

    def answer(_request):
        if len(fake.requests) < 4:
            raise errors.WorkerUnavailableError("no verifier at h:1: none has joined yet\x1b[2J")
        return [Started("r", 1, 1), Delta(0, (1,), "text"), Finished(0, FinishReason.STOP)]

    fake.events = answer
    result = minedraft("generate", "hi", "--raw")
    assert result.stdout == "text\n"
    assert result.stderr.count("no verifier at h:1") == 1
    assert result.stderr.startswith("waiting up to 60 s: no verifier at h:1: none has joined yet")
    assert "\x1b" not in result.stderr


def test_a_chat_remembers_and_outlives_a_failed_question(minedraft, fake):
    from minedraft.api import Delta, Finished, Started
    from minedraft.types import FinishReason

    def reply(request):
        if request.messages[-1].content == "bad":
            raise errors.InvalidRequestError("prompt: bad", field="prompt")
        said = f"answer {len(request.messages)}"
        return [Started("r", 1, 1), Delta(0, (1,), said), Finished(0, FinishReason.STOP)]

    fake.events = reply
    result = minedraft("chat", "--system", "s", stdin="one\n\nbad\ntwo\n")
    assert result.exit_code == 0
    assert "error: prompt: bad" in result.stderr
    last = fake.requests[-1].messages
    assert [(m.role, m.content) for m in last] == [
        ("system", "s"),
        ("user", "one"),
        ("assistant", "answer 2"),
        ("user", "two"),
    ]


def test_an_answer_that_somebody_aborted_is_an_error_after_what_there_is_of_it(minedraft, fake):
    from minedraft.api import Delta, Finished, Started
    from minedraft.types import FinishReason

    fake.events = lambda _request: [
        Started("r", 1, 1),
        Delta(0, (1,), "half"),
        Finished(0, FinishReason.ABORT),
    ]
    result = minedraft("generate", "hi")
    assert (result.exit_code, result.stdout) == (1, "half\n")
    assert result.stderr.startswith("error: request 'r' was aborted by another caller")
    assert minedraft("generate", "hi", "--json").exit_code == 1
