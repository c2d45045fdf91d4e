# SPDX-License-Identifier: Apache-2.0
# One deb and one rpm by cpack, of all that is installed. PMIx, UCX and verbs are the node's: the
# plug-ins for them are not used where they are not there, so they are no dependencies.
set(CPACK_PACKAGE_NAME halay)
set(CPACK_PACKAGE_VENDOR "Halay")
set(CPACK_PACKAGE_CONTACT "the maintainers of Halay")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "RDMA-first collectives and data-parallel training")
set(CPACK_PACKAGE_DESCRIPTION "Collectives between the processes of a job over shared memory, RDMA and TCP, and training on them.
Use it by its module file: module use /opt/halay/share/modulefiles; module load halay")
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE libc OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "[^0-9.]" "" libc "${libc}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /opt/halay) # as other libraries of fabrics; its module file is used from there
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${libc})")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-cffi, libpmix2, libucx0, libibverbs1")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_AUTOREQ OFF)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none")
set(CPACK_RPM_PACKAGE_REQUIRES "glibc >= ${libc}")
include(CPack)
