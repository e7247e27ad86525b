// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
)

// HostPorts has the kernel's host ports follow the attachments, one change at a time. Its methods
// are safe for concurrent use.
type HostPorts struct {
	Attachments *attachment.Store
	Kernel      interface {
		SetHostPorts(list []hostnet.HostPort) error
		CheckHostPorts() error
	}

	mu sync.Mutex
	// leaving are attachments that have no host ports any more and are still recorded.
	leaving map[attachment.Key]bool
}

// Set writes those of all attachments.
func (h *HostPorts) Set() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.write()
}

// Attach returns when the node's ports lead to the pod.
func (h *HostPorts) Attach(at attachment.Attachment) error {
	if len(at.HostPorts) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.leaving, at.Key)
	return h.write()
}

// Detach returns when no port of the node's leads to the pod.
func (h *HostPorts) Detach(at attachment.Attachment) error {
	if len(at.HostPorts) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaving == nil {
		h.leaving = map[attachment.Key]bool{}
	}
	h.leaving[at.Key] = true
	return h.write()
}

// Check returns an error if the kernel lacks some of an attachment that has some.
func (h *HostPorts) Check(at attachment.Attachment) error {
	if len(at.HostPorts) == 0 {
		return nil
	}
	if err := h.Kernel.CheckHostPorts(); err != nil {
		return fmt.Errorf("host ports of %s: %w", at.PodRef(), err)
	}
	return nil
}

// write needs mu to be held.
func (h *HostPorts) write() error {
	list := h.Attachments.List()
	// Of two pods that have the same port, because one is about to go, the newer one has it.
	slices.SortStableFunc(list, func(a, b attachment.Attachment) int { return a.Created.Compare(b.Created) })
	maps.DeleteFunc(h.leaving, func(k attachment.Key, _ bool) bool {
		_, recorded := h.Attachments.Get(k)
		return !recorded
	})
	var ports []hostnet.HostPort
	for _, at := range list {
		if !h.leaving[at.Key] {
			ports = append(ports, hostPortsOf(at)...)
		}
	}
	return h.Kernel.SetHostPorts(ports)
}

// hostPortsOf are an attachment's, one for each family that it has an address of.
func hostPortsOf(at attachment.Attachment) []hostnet.HostPort {
	addresses := at.Addresses
	if len(at.NodeAddresses) > 0 {
		addresses = at.NodeAddresses
	}
	var list []hostnet.HostPort
	for _, p := range at.HostPorts {
		for _, a := range addresses {
			if p.HostIP.IsValid() && p.HostIP.Is4() != a.Addr().Is4() {
				continue
			}
			port := hostnet.HostPort{Protocol: p.Protocol, Port: p.HostPort, Address: p.HostIP,
				To: netip.AddrPortFrom(a.Addr(), p.Port)}
			if p.HostIP.IsUnspecified() {
				port.Address = netip.Addr{}
			}
			list = append(list, port)
		}
	}
	return list
}
