// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// Planner says which interfaces a pod is to have and where their addresses come from. Its methods may be called for
// several pods at once. What an error of theirs means for the runtime is in *PlanError; any other error is a failure.
type Planner interface {
	// Plan is asked at an ADD of what is not attached yet. It waits, bounded by ctx, for what it must know: the pod, its
	// namespace, the Networks. The first interface is the one of CNI_IFNAME; further ones may follow only if the ADD is
	// of the pod's primary interface (not Ask.Delegate).
	Plan(ctx context.Context, ask Ask) ([]Interface, error)
	// Ranges are those of a Network's blocks on this node, in the order in which they are to be used; one is claimed if
	// there is none. exhausted lists those of one family that have no free address left: if there is no other one by now,
	// another one has to be claimed. It is empty at first. It is not called for a Network with addresses of the podCIDRs. Without a subnet there is no range.
	Ranges(ctx context.Context, network string, exhausted []netip.Prefix) ([]ipam.Range, error)
	// Claim makes sure that fixed addresses and a fixed MAC are this attachment's alone in the whole cluster, and known
	// to the other nodes. The attachment is recorded and not wired. Claiming again what is claimed is no error.
	Claim(ctx context.Context, a attachment.Attachment) error
	// Unclaim undoes it, also if it was not claimed. What cannot be done now, because the API is away, is the
	// Planner's to do later: an error is logged and keeps no pod from being deleted.
	Unclaim(ctx context.Context, a attachment.Attachment) error
}

// Ask is what an ADD asks for.
type Ask struct {
	Namespace, Pod, UID string
	ContainerID         string
	IfName              string
	// ConfName is the name in the CNI configuration.
	ConfName string
	// Network is the key network or nfn-network of the CNI configuration, which names a Coelan Network; empty: none.
	Network string
	// Delegate says that just this interface is meant and not all of the pod: the configuration names a Network, or
	// CNI_IFNAME is not eth0.
	Delegate bool
	// IPs and MAC were asked for by runtimeConfig, args or CNI_ARGS, for this interface.
	IPs []netip.Addr
	MAC *intent.MAC
}

// Interface is one that a pod is to have.
type Interface struct {
	IfName    string
	Network   string // name of the Coelan Network
	NetworkID intent.NetworkID
	// Primary says that it is the pod's first interface, on a Network that can be that.
	Primary bool
	// MTU in bytes; 0: the node's. More than the node's is the node's.
	MTU int
	// PodCIDR says that addresses are of the node's podCIDRs, which all such Networks share.
	PodCIDR bool
	// Subnets of the Network: fixed addresses have to be in one, and get its prefix length and gateway. They are the
	// node's podCIDRs, and need not be given, with PodCIDR.
	Subnets []intent.NetworkSubnet
	// Addresses are fixed ones; empty: one of each family from the ranges.
	Addresses []netip.Addr
	MAC       *intent.MAC // nil: made from the first address
	// DefaultRoute asks for the default route of each family that the interface has an address of. The first further
	// interface that asks gets a family's, and only if there is none the pod's first interface: so that may always ask.
	DefaultRoute bool
	// Gateways, at most one of each family, take the place of the subnets' for the default route.
	Gateways []netip.Addr
	// Routes beside the default route and those to the interface's own subnets. What a pod needs to answer its node when
	// another interface takes its default route is added: see Node.Cluster.
	Routes []attachment.Route
	// NodeAddresses asks for an address of the podCIDRs of each family that the interface has, by which the node
	// reaches it: those are its addresses for the runtime.
	NodeAddresses bool
	// NAD is namespace/name of the NetworkAttachmentDefinition that asked for it, if one did.
	NAD string
	// DNS of the Network, for the runtime.
	DNS types.DNS
}

// PlanError says why a pod cannot have what it asks for.
type PlanError struct {
	Reason  string // of the Event, in one word: one of the reasons of package v1alpha1
	Message string // names the object, the annotation or the value
	// Retry says that nothing is wrong and that it is only too early.
	Retry bool
}

func (e *PlanError) Error() string { return e.Message }
