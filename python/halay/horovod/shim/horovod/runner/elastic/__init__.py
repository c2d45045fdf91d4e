# SPDX-License-Identifier: Apache-2.0
"""What programs and tests take from Horovod's elastic driver; halayrun does its work."""
