# SPDX-License-Identifier: Apache-2.0
"""Horovod's wrapper of tf.data.service is not there."""

from halay.horovod import surface as _surface

globals().update(
    _surface.fetch(
        [],
        ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"],
        "horovod.tensorflow.data.compute_service",
    )
)
