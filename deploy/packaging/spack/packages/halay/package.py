# SPDX-License-Identifier: Apache-2.0
"""Halay for Spack: `spack repo add deploy/packaging/spack` in a clone, then `spack install halay`."""

from spack.package import *


class Halay(CMakePackage):
    """RDMA-first collectives in C, and data-parallel training with Horovod's surface."""

    homepage = "https://halay.invalid"
    license("Apache-2.0")

    # A release is a tarball of scripts/release; a clone is used by `spack develop`.
    version("0.1.0")
    manual_download = True

    variant("pmix", default=True, description="started by srun --mpi=pmix, mpirun and prterun")
    variant("ucx", default=True, description="the transport ucx")
    variant("verbs", default=True, description="the transport verbs")
    variant("python", default=True, description="the Python package, in LIBDIR/halay/python")
    variant("man", default=False, description="manual pages")

    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pandoc", type="build", when="+man")
    depends_on("pmix@4:", when="+pmix")
    depends_on("ucx@1.12:", when="+ucx")
    depends_on("rdma-core", when="+verbs")
    depends_on("python@3.9:", type="run", when="+python")
    depends_on("py-cffi@1.15:", type="run", when="+python")

    def cmake_args(self):
        return [
            self.define("HALAY_TESTS", False),
            self.define_from_variant("HALAY_PMIX", "pmix"),
            self.define_from_variant("HALAY_UCX", "ucx"),
            self.define_from_variant("HALAY_VERBS", "verbs"),
            self.define_from_variant("HALAY_PYTHON_PACKAGE", "python"),
        ]

    def setup_run_environment(self, env):
        if self.spec.satisfies("+python"):
            env.prepend_path("PYTHONPATH", join_path(self.prefix.lib, "halay", "python"))
