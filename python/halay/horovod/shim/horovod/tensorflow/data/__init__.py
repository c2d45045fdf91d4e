# SPDX-License-Identifier: Apache-2.0
"""What Horovod has for tf.data."""
