# SPDX-License-Identifier: Apache-2.0
# The transport over verbs: what it decides, everywhere; by loopback, where there is an RDMA device.
halay_test(unit verbs_rules SOURCES test_verbs_rules.c
           ${PROJECT_SOURCE_DIR}/transports/verbs/rules.c)
halay_test(unit verbs_rails SOURCES test_verbs_rails.c
           ${PROJECT_SOURCE_DIR}/transports/verbs/rails.c
           ${PROJECT_SOURCE_DIR}/transports/verbs/rules.c)
if(TARGET halay_transport_verbs)
  halay_test(unit verbs_open SOURCES test_verbs_open.c LIBS halay_transport_verbs)
  target_link_options(test_unit_verbs_open PRIVATE
    -Wl,--wrap=ibv_reg_mr,--wrap=ibv_reg_mr_iova2,--wrap=ibv_dereg_mr
    -Wl,--wrap=ibv_modify_qp,--wrap=ibv_destroy_qp,--wrap=ibv_dealloc_pd,--wrap=ibv_close_device
    -Wl,--wrap=pthread_create)
  halay_test(unit transport_verbs SOURCES test_transport_verbs.c
             LIBS halay_transport_body halay_transport_verbs TIMEOUT 300)
endif()
