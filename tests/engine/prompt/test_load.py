from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.prompt import inline_prompt, load_prompt
from airflow_provider_llmbatch.errors import InputError

CONTENT = """\
system: You sort tickets.
user: |
  Ticket: {{ text }}
params:
  temperature: 0
output_schema:
  type: object
  properties: {label: {type: string}}
notes: first try
"""


def write(folder: Path, name: str, version: str, content: str | bytes = CONTENT) -> Path:
    path = folder / name / f"{version}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_prompt_file_is_read_with_its_name_version_and_hash(tmp_path):
    write(tmp_path, "tickets", "v1")
    prompt = load_prompt("tickets@v1", [tmp_path])
    assert str(prompt.ref) == "tickets@v1"
    assert prompt.ref.sha == hashlib.sha256(CONTENT.encode()).hexdigest()
    assert prompt.system == "You sort tickets."
    assert prompt.user == "Ticket: {{ text }}\n"
    assert prompt.params == {"temperature": 0}
    assert prompt.output_schema == {"type": "object", "properties": {"label": {"type": "string"}}}
    assert prompt.notes == "first try"


def test_line_ends_do_not_change_the_hash_and_anything_else_does(tmp_path):
    write(tmp_path, "a", "unix")
    write(tmp_path, "a", "windows", CONTENT.replace("\n", "\r\n"))
    write(tmp_path, "a", "other", CONTENT + "\n")
    unix, windows, other = (load_prompt(f"a@{v}", [tmp_path]) for v in ("unix", "windows", "other"))
    assert unix.ref.sha == windows.ref.sha != other.ref.sha
    assert windows.user == "Ticket: {{ text }}\n"


def test_the_first_directory_that_has_the_version_wins(tmp_path):
    write(tmp_path / "bundle", "a", "1", "user: near")
    write(tmp_path / "shared", "a", "1", "user: far")
    write(tmp_path / "shared", "a", "2", "user: far")
    path = [tmp_path / "bundle", tmp_path / "missing", tmp_path / "shared"]
    assert load_prompt("a@1", path).user == "near"
    assert load_prompt("a@2", path).user == "far"


def test_a_name_alone_means_the_only_version(tmp_path):
    write(tmp_path, "a", "2026-01")
    assert load_prompt("a", [tmp_path]).ref.version == "2026-01"
    write(tmp_path, "a", "2026-02")
    with pytest.raises(InputError, match="several versions: 2026-01, 2026-02; name one, as a@<version>"):
        load_prompt("a", [tmp_path])


def test_a_missing_version_names_those_that_exist(tmp_path):
    write(tmp_path, "a", "1")
    with pytest.raises(InputError, match=r"no version '2' in .*; it has 1\."):
        load_prompt("a@2", [tmp_path])
    with pytest.raises(InputError, match=r"There is no prompt 'b' in .*; write b/<version>.yaml"):
        load_prompt("b@1", [tmp_path])
    with pytest.raises(InputError, match="no directory at all"):
        load_prompt("b@1", [])


@pytest.mark.parametrize(
    "name",
    [
        "../a@1",
        "a@../1",
        "a/b@1",
        "/etc@1",
        "..@1",
        "a@..",
        ".hidden@1",
        "",
        "a@",
        "@1",
        "a@b@c",
        "a\n@1",
        "*@1",
    ],
)
def test_a_name_that_could_leave_the_directory_is_refused(tmp_path, name):
    write(tmp_path, "a", "1")
    with pytest.raises(InputError, match="is no name@version"):
        load_prompt(name, [tmp_path / "a"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("system: a\nsistem: b", "the key 'sistem' is not known; known are system, user, params"),
        ("system: [a]", "system is a list; give text"),
        ("user: 7", "user is a int; give text"),
        ("user: a\nparams: hot", "params is a str; give a mapping"),
        (
            "user: a\noutput_schema: app.models:Ticket",
            "output_schema is a str; give a mapping that is a JSON",
        ),
        ("user: a\nparams: {since: 2026-01-02}", "params holds what JSON cannot"),
        ("user: a\nparams: {x: .nan}", "params holds what JSON cannot"),
        ("notes: nothing else", "has neither 'system' nor 'user'"),
        ("", "is no mapping"),
        ("- a", "is no mapping"),
        ("system: a\nuser: {{ text }}: x", "is no valid YAML: .* at line 2, column"),
        (b"user: \xff", "is not UTF-8"),
        ("user: a\nuser: b", "line 2: the key 'user' stands there twice"),
        ("user: a\nparams: {seed: 1, seed: 2}", "the key 'seed' stands there twice"),
        ("user: 'a {{ text'", "user is no valid template, line 1: .*raw"),
        ("system: '{% if x %}'", "system is no valid template"),
        ("user: '{{ text | shout }}'", "No filter named 'shout'"),
    ],
)
def test_a_prompt_file_that_is_not_as_it_should_be_names_file_and_key(tmp_path, content, words):
    path = write(tmp_path, "a", "1", content)
    with pytest.raises(InputError, match=words) as caught:
        load_prompt("a@1", [tmp_path])
    assert str(path) in str(caught.value)


def test_an_inline_prompt_is_versioned_by_its_content():
    one, same, other = inline_prompt("s", "u"), inline_prompt("s", "u"), inline_prompt("su", None)
    assert one.ref == same.ref != other.ref
    assert one.ref.name == "inline"
    assert one.ref.sha.startswith(one.ref.version)
    assert len(one.ref.version) == 8
    with pytest.raises(InputError, match="The inline prompt: user is no valid template"):
        inline_prompt("s", "{{ a")
