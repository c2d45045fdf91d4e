# SPDX-License-Identifier: Apache-2.0
"""A rank: what has to work under every jaxlib, without torch and pytest."""

import jax
import jax.numpy as jnp

import halay.jax as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
total = sum(range(size))

for call in (lambda f: f, jax.jit):
    x = jnp.arange(4.0) * 0 + rank
    assert call(lambda x: hvd.allreduce(x, op=hvd.Sum))(x).tolist() == [total] * 4
    assert call(hvd.allgather)(x[:1]).tolist() == list(range(size))
    assert call(lambda x: hvd.broadcast(x, 1))(x).tolist() == [1] * 4
    assert call(lambda x: hvd.reducescatter(x, op=hvd.Sum))(x[:size]).tolist() == [total]
    assert call(hvd.alltoall)(x[:size]).tolist() == list(range(size))
    assert call(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum))(x)[1][0] == 2 * total
    gradient = call(jax.grad(lambda x: (hvd.allgather(x) * (rank + 1)).sum()))(x)
    assert gradient.tolist() == [sum(range(1, size + 1))] * 4
    batched = call(jax.vmap(hvd.allgather))(jnp.full((3, 2), float(rank)))
    assert batched.tolist() == [[float(r) for r in range(size) for _ in range(2)]] * 3

many = jax.jit(lambda x: [hvd.allreduce(x + i, name=f"{i}") for i in range(40)])
for _ in range(10):
    assert [float(y) for y in many(jnp.float32(0))] == list(range(40))
_, seen = jax.lax.scan(lambda c, x: (c, hvd.allreduce(x, op=hvd.Sum)), 0, jnp.arange(5.0))
assert seen.tolist() == [size * i for i in range(5)]

try:
    jax.block_until_ready(jax.jit(hvd.allreduce)(jnp.ones(2 + rank)))
except Exception as error:
    assert "HALAY_EMISMATCH" in str(error), error
else:
    raise SystemExit("a difference was not told")
program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
assert float(program(1.0)) == size
hvd.shutdown()
try:
    jax.block_until_ready(program(1.0))
except Exception as error:
    assert "HALAY_ESTATE" in str(error), error
else:
    raise SystemExit("a call after shutdown() was not told")
print(f"jax {jax.__version__} well", flush=True)
