/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - what a device needs, beside memory: its queues; and what it tells of itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "verbs.h"

/* Queues: one of completions and one of receive requests. */
static int queues_open(halay_transport_t *t, hly_verbs_device_t *device)
{
    struct ibv_srq_init_attr init = {.attr = {.max_sge = 1}};
    device->queue = HLY_VERBS_QUEUE;
    if (device->limits.max_srq_wr > 0 && (uint32_t)device->limits.max_srq_wr < device->queue)
        device->queue = (uint32_t)device->limits.max_srq_wr;
    init.attr.max_wr = device->queue;
    device->cq_room = 1024;
    device->pd = ibv_alloc_pd(device->context);
    device->channel = ibv_create_comp_channel(device->context);
    if (!device->pd || !device->channel)
        return -1;
    device->cq = ibv_create_cq(device->context, device->cq_room, t, device->channel, 0);
    device->srq = ibv_create_srq(device->pd, &init);
    if (!device->cq || !device->srq)
        return -1;
    return fcntl(device->channel->fd, F_SETFL, O_NONBLOCK) ||
           fcntl(device->context->async_fd, F_SETFL, O_NONBLOCK);
}

static const char *name_of(const hly_verbs_device_t *device)
{
    return ibv_get_device_name(device->context->device);
}

int hly_verbs_devices_open(halay_transport_t *t)
{
    for (int i = 0; i < t->ndevices; i++) {
        if (queues_open(t, &t->devices[i]))
            return hly_meet_error(&t->meet, HALAY_ETRANSPORT,
                                  "%s gives no queues: %s; check the limits on locked memory "
                                  "(ulimit -l), open files (ulimit -n) and of the control group "
                                  "(rdma.max), or say HALAY_TRANSPORT=shm+tcp",
                                  name_of(&t->devices[i]), strerror(errno));
    }
    return HALAY_OK;
}

/* A port of a device that changes, if it serves. */
static void port_changed(const halay_transport_t *t, int device,
                         const struct ibv_async_event *event)
{
    for (int i = 0; i < t->nrails; i++) {
        const hly_verbs_rail_t *rail = &t->rails[i];
        if (rail->device == device && rail->port.port == (uint32_t)event->element.port_num)
            hly_meet_log(&t->meet, 1, "%s: %s%s", rail->name, ibv_event_type_str(event->event_type),
                         event->event_type == IBV_EVENT_PORT_ERR
                             ? ": no peer is reached until its link is up (ip link, rdma link)"
                             : "");
    }
}

/* Most end by themselves in errors of queue pairs; the message here says why. */
static void device_look(halay_transport_t *t, int i)
{
    const hly_verbs_device_t *device = &t->devices[i];
    struct ibv_async_event event;
    for (int k = 0; k < HLY_VERBS_BATCH && ibv_get_async_event(device->context, &event) == 0; k++) {
        if (event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_CQ_ERR ||
            event.event_type == IBV_EVENT_SRQ_ERR)
            t->meet.error = hly_meet_error(&t->meet, HALAY_ETRANSPORT, "%s has failed: %s",
                                           name_of(device), ibv_event_type_str(event.event_type));
        else if (event.event_type == IBV_EVENT_PORT_ERR ||
                 event.event_type == IBV_EVENT_PORT_ACTIVE)
            port_changed(t, i, &event);
        ibv_ack_async_event(&event);
    }
}

void hly_verbs_devices_look(halay_transport_t *t)
{
    for (int i = 0; i < t->ndevices; i++)
        device_look(t, i);
}
