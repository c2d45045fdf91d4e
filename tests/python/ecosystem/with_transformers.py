# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, on models of some thousand parameters that are made here."""

import tempfile

import torch
import torch.distributed as dist
from rank import numbers, start
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

TOKENS, LENGTH, ROWS = 40, 8, 48


def rows(labels):
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, TOKENS, (ROWS, LENGTH), generator=generator)
    return [{"input_ids": one, "labels": labels(one)} for one in ids]


def trained(backend, module, data, **options):
    start(backend)
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=4, per_device_train_batch_size=4,
        learning_rate=0.01, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True,
        seed=5, **options,
    )  # fmt: skip
    trainer = Trainer(model=module, args=arguments, train_dataset=data, eval_dataset=data)
    assert trainer.args.world_size == dist.get_world_size()
    assert trainer.args.process_index == dist.get_rank()
    trainer.train()
    found = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    predicted = trainer.predict(data)
    found += [predicted.metrics["test_loss"], float(abs(predicted.predictions).sum())]
    return found + numbers(module.parameters())[:8]


def bert(backend):
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=TOKENS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=LENGTH, num_labels=2,
    )  # fmt: skip
    module = BertForSequenceClassification(config)
    return trained(backend, module, rows(lambda ids: int(ids[0]) % 2))


def gpt2(backend):
    torch.manual_seed(2)
    config = GPT2Config(
        vocab_size=TOKENS, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    more = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "bf16": True}
    return trained(backend, GPT2LMHeadModel(config), rows(lambda ids: ids), **more)
