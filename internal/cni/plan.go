// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"net/netip"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// Planner says which interfaces a pod is to have and where their addresses come from. Its methods
// may be called for several pods at once. What an error of theirs means for the runtime is in
// *PlanError; any other error is a failure.
type Planner interface {
	// Plan is asked at an ADD of what is not attached yet. It waits, bounded by ctx, for what it
	// must know: the pod, its namespace, the Networks. The first interface is the one of
	// CNI_IFNAME; further ones may follow only if the ADD is of the pod's primary interface (not
	// Request.Delegate). A plan says of its Spec the interface's name, the Network with its id, its
	// routes, its DNS and its MTU (0, or more than the node's: the node's), BlockSpace, Primary and
	// NAD; the server knows the rest. Subnets need not be given without BlockSpace: they are the
	// node's podCIDRs then. The first further interface that asks for the default route of a family
	// gets it, and only if there is none the pod's first interface: so that may always ask. What a
	// pod needs to answer its node when another interface takes its default route is added to its
	// routes: see Node.Cluster.
	Plan(ctx context.Context, r Request) ([]attachment.Plan, error)
	// Ranges are those of a Network's blocks on this node, in the order in which they are to be
	// used; one is claimed if there is none. They are in those of the Network's subnets that the
	// plan has. exhausted lists those of one family that have no free address left: if there is no
	// other one by now, another one has to be claimed. It is empty at first. It is not called for a
	// Network with addresses of the podCIDRs. Without a subnet there is no range.
	Ranges(ctx context.Context, network string, subnets []intent.NetworkSubnet, exhausted []netip.Prefix) (
		[]ipam.Range, error)
	// Claim makes sure that fixed addresses and a fixed MAC are this attachment's alone in the
	// whole cluster, and known to the other nodes. The attachment is recorded and not wired.
	// Claiming again what is claimed is no error.
	Claim(ctx context.Context, a attachment.Attachment) error
	// Unclaim undoes it, also if it was not claimed. What cannot be done now, because the API is
	// away, is the Planner's to do later: an error is logged and keeps no pod from being deleted.
	Unclaim(ctx context.Context, a attachment.Attachment) error
}

// Request is an ADD as a Planner sees it.
type Request struct {
	attachment.Key
	PodUID, PodNamespace, PodName string
	// Network is the key network or nfn-network of the CNI configuration, which names a Coelan
	// Network; empty: none.
	Network string
	// VNI is the key ovs.vxlan of the CNI configuration, which selects the Network that has it; 0:
	// it is not given, as whenever Network is.
	VNI uint32
	// NeutronPort is the UUID in CNI_ARGS of the port in Neutron that the interface is to be;
	// empty: none. The Planner answers for it that the pod may have the port, and gives the
	// interface its addresses and MAC.
	NeutronPort string
	// Requested is by runtimeConfig, args or CNI_ARGS, for this interface.
	attachment.Requested
}

// firstInterface is what runtimes call the interface that a pod's address is that of.
const firstInterface = "eth0"

// Delegate says that just this interface is meant and not all of the pod: the configuration names a
// Network, or CNI_IFNAME is not eth0.
func (r Request) Delegate() bool { return r.Network != "" || r.VNI != 0 || r.IfName != firstInterface }

// PlanError says why a pod cannot have what it asks for.
type PlanError struct {
	Reason  string // of the Event, in one word: one of the reasons of package v1alpha1
	Message string // names the object, the annotation or the value
	// Retry says that nothing is wrong and that it is only too early.
	Retry bool
}

func (e *PlanError) Error() string { return e.Message }
