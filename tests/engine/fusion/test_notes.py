"""Notes, facts and the gate for identities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import torch
from pydicom.dataset import Dataset

from airflow_provider_llmbatch.engine.fusion.encoders.registry import text_model_of
from airflow_provider_llmbatch.engine.fusion.encoders.text import BertEncoder
from airflow_provider_llmbatch.engine.fusion.errors import CODES, FusionInputError
from airflow_provider_llmbatch.engine.fusion.readers import deid
from airflow_provider_llmbatch.engine.fusion.readers.facts import read_facts
from airflow_provider_llmbatch.engine.fusion.readers.notes import INNER, OVERLAP, Windows, read_text
from airflow_provider_llmbatch.engine.fusion.schema import ModalitySpec

FOLDER = text_model_of(ModalitySpec(name="notes", kind="note"))
#: Texts and what sentence-transformers makes of them.
REFERENCE = json.loads((Path(__file__).parent / "data" / "minilm.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def windows() -> Windows:
    return Windows(FOLDER)


@pytest.fixture(scope="module")
def embed(windows):
    encoder = BertEncoder.from_dir(FOLDER).eval()

    def _embed(*texts: str) -> np.ndarray:
        cut = [windows.cut(text) for text in texts]
        longest = max(int((each != 0).sum(axis=1).max()) for each in cut)
        with torch.inference_mode():
            values = torch.from_numpy(np.concatenate(cut))
            return encoder(values, [len(each) for each in cut], longest).numpy()

    return _embed


def test_notes_of_one_window_are_what_sentence_transformers_makes_of_them(embed):
    expected = np.asarray(REFERENCE["embeddings"], np.float32)
    alone = np.concatenate([embed(text) for text in REFERENCE["texts"]])
    together = embed(*REFERENCE["texts"])
    assert np.abs(alone - expected).max() <= 1e-5
    assert np.abs(together - expected).max() <= 1e-5


@pytest.mark.parametrize("words", [1, 253, 254, 255, 300, 476, 477, 902])
def test_every_token_is_in_a_window_and_neighbours_overlap(windows, words):
    text = " ".join(["lung", "liver", "heart", "spine", "bone"][n % 5] for n in range(words))
    cut = windows.cut(text)
    whole = [window[1 : int((window != 0).sum()) - 1].tolist() for window in cut]
    together = whole[0] + [token for window in whole[1:] for token in window[OVERLAP:]]
    assert len(together) == words
    assert all(len(window) == INNER for window in whole[:-1])
    assert {int(window[0]) for window in cut} == {101}
    assert all(window[int((window != 0).sum()) - 1] == 102 for window in cut)


def test_a_tail_behind_all_limits_of_the_model_changes_the_embedding(embed):
    head = "The scan shows nothing of note. " * 120
    clean, ill = embed(head + "No lesion.", head + "A spiculated mass of 34 mm.")
    assert np.abs(clean - ill).max() > 1e-3


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"text": " \n\t"}, "note.empty"),
        ({"text": "a\0b"}, "note.control"),
        ({"text": "x" * 101}, "note.too_long"),
        ({"path": "/nowhere/note.txt"}, "note.not_found"),
    ],
)
def test_a_text_that_is_no_note_is_refused_with_its_code(given, code):
    with pytest.raises(FusionInputError) as refused:
        read_text(given, 100)
    assert refused.value.code == code


def test_a_file_of_another_encoding_is_refused_and_a_byte_order_mark_is_not(tmp_path):
    (tmp_path / "a.txt").write_bytes("Läsion".encode("latin-1"))
    (tmp_path / "b.txt").write_bytes("Läsion".encode("utf-8-sig"))
    with pytest.raises(FusionInputError, match=r"note\.encoding.*byte 1"):
        read_text({"path": str(tmp_path / "a.txt")}, 100)
    assert read_text({"path": str(tmp_path / "b.txt")}, 100) == "Läsion"


def test_facts_are_the_same_in_any_order_and_differ_with_what_they_say():
    one = read_facts({"value": {"size": 34, "lesion": True, "sites": ["lung", "liver"]}}, 4096)
    two = read_facts({"value": {"sites": ["liver", "lung"], "lesion": True, "size": 34}}, 4096)
    other = read_facts({"value": {"sites": ["liver", "lung"], "lesion": False, "size": 34}}, 4096)
    assert (one == two).all()
    assert one.shape == (4, 2)
    assert not (one == other).all()


@pytest.mark.parametrize(
    ("value", "code"),
    [("no json", "facts.invalid"), ([1], "facts.invalid"), ({}, "facts.empty"), ({"a": None}, "facts.empty")],
)
def test_what_holds_no_facts_is_refused(value, code):
    with pytest.raises(FusionInputError) as refused:
        read_facts({"value": value}, 64)
    assert refused.value.code == code


def header(**tags: str) -> Dataset:
    head = Dataset()
    for name, value in tags.items():
        setattr(head, name, value)
    return head


@pytest.mark.parametrize(
    ("tags", "finding"),
    [
        ({"PatientName": "Doe^Jane"}, "deid.person"),
        ({"PatientID": "4711-A"}, "deid.person"),
        ({"PatientName": "Doe^Jane", "PatientIdentityRemoved": "YES"}, None),
        ({"PatientName": "ANON^1", "PatientID": "anonymised"}, None),
        ({"PatientIdentityRemoved": "YES", "BurnedInAnnotation": "YES"}, "deid.burned_in"),
        ({"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7"}, "deid.burned_in"),
        ({}, None),
    ],
)
def test_headers_that_name_a_person_are_found(tags, finding):
    assert deid.in_header(header(**tags)) == finding


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("Write to jane.doe@clinic.example.", "deid.note"),
        ("MRN: 00123456", "deid.note"),
        ("Patient name: Jane Doe", "deid.note"),
        ("SSN 123-45-6789", "deid.note"),
        ("Call (555) 123-4567.", "deid.note"),
        ("Mass of 34 x 20 mm, SUV 4.5, slices 123 to 145, 2024-05-06.", None),
    ],
)
def test_notes_that_hold_an_identity_are_found(text, finding):
    assert deid.in_note(text) == finding


def test_slides_with_a_picture_of_their_label_are_found():
    assert deid.in_slide(["thumbnail", "label"]) == "deid.slide_label"
    assert deid.in_slide(["thumbnail"]) is None


def test_every_code_says_something_and_an_unknown_one_cannot_be_raised():
    assert all(code.partition(".")[2] and words for code, words in CODES.items())
    with pytest.raises(KeyError):
        FusionInputError("ct.something")
