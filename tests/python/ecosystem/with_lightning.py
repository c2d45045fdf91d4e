# SPDX-License-Identifier: Apache-2.0
"""Lightning: ranks that a launcher has started, and ranks that Lightning starts itself."""

import logging
import warnings

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from rank import dataset, mlp, numbers

warnings.filterwarnings("ignore")
logging.getLogger("lightning").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner, self.seen = mlp(), []

    def training_step(self, rows, _):
        loss = torch.nn.functional.cross_entropy(self.inner(rows[0]), rows[1])
        self.log("loss", loss, sync_dist=True)
        self.seen.append(loss.item())
        return loss

    def validation_step(self, rows, _):
        loss = torch.nn.functional.cross_entropy(self.inner(rows[0]), rows[1])
        self.log("validation", loss, sync_dist=True)

    def on_train_epoch_end(self):
        self.seen += self.all_gather(torch.tensor([self.global_rank + 1.0])).flatten().tolist()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Sharded(Module):
    def configure_model(self):
        from torch.distributed.fsdp import fully_shard

        if not isinstance(self.inner, torch.distributed.fsdp.FSDPModule):
            fully_shard(self.inner, mesh=self.device_mesh["data_parallel"])


def fitted(strategy, module=None):
    module = module or Module()
    loader = torch.utils.data.DataLoader(dataset(), batch_size=8, shuffle=True)
    check = torch.utils.data.DataLoader(dataset(24), batch_size=8)
    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, num_nodes=1, strategy=strategy, max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, loader, check)
    assert trainer.world_size == dist.get_world_size() == 2
    assert trainer.global_rank == dist.get_rank()
    kept = [trainer.callback_metrics[name].item() for name in ("loss", "validation")]
    return module.seen + kept


def ddp(backend):
    module = Module()
    return fitted(DDPStrategy(process_group_backend=backend), module) + numbers(module.parameters())


def fsdp2(backend):
    return fitted(ModelParallelStrategy(process_group_backend=backend), Sharded())


def fabric(backend):
    runner = lightning.Fabric(
        accelerator="cpu", devices=2,
        strategy=lightning.fabric.strategies.DDPStrategy(process_group_backend=backend),
    )  # fmt: skip
    runner.launch()
    module = mlp()
    module, optimizer = runner.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    loader = runner.setup_dataloaders(torch.utils.data.DataLoader(dataset(), batch_size=8))
    found = []
    for step, (x, y) in enumerate(loader):
        with runner.no_backward_sync(module, enabled=step % 2 == 0):
            loss = torch.nn.functional.cross_entropy(module(x), y)
            runner.backward(loss)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
        found += runner.all_reduce(loss.detach(), reduce_op="mean").reshape(1).tolist()
    runner.barrier()
    assert runner.broadcast({"of": runner.global_rank}) == {"of": 0}
    return found + numbers(module.parameters())
