// SPDX-License-Identifier: Apache-2.0

// Package attachment remembers, over restarts and power loss, which interfaces
// of which pods this node has attached, and hands out what each needs: one
// address of every family and an OpenFlow port number.
package attachment

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"coelan.io/coelan/internal/intent"
)

// Key identifies an attachment: the container id that the runtime chose, which
// it never uses again, and the name of the interface in the pod. PortKey makes the key of a user's Port.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// String is the key as messages and indexes have it: container id/interface.
func (k Key) String() string { return k.ContainerID + "/" + k.IfName }

// Attachment is one interface of one pod, or a user's Port, see PortKey. It is a value: what a Store returns can be kept
// and changed without harm.
type Attachment struct {
	Key
	// Network is the name in the CNI configuration that the attachment was asked
	// by; GC of one network leaves those of others alone.
	Network string `json:"network"`
	// MadeWith is the interface whose ADD made this one too, and whose DEL removes it; empty: it has its own.
	MadeWith string `json:"madeWith,omitempty"`

	PodUID       string `json:"podUID"`
	PodNamespace string `json:"podNamespace"`
	PodName      string `json:"podName"`
	// Netns is the path of the pod's network namespace as the runtime named it.
	Netns string `json:"netns"`

	// HostInterface is the name of the host's end of the pod's veth pair, or of a user's interface.
	HostInterface string     `json:"hostInterface"`
	MAC           intent.MAC `json:"mac"`
	// Addresses carry the length of the subnet they are from. Those that were not asked for are one of each family, in
	// the order of the ranges.
	Addresses []netip.Prefix `json:"addresses"`
	// Gateways has one gateway for each address; an invalid one if the subnet has none.
	Gateways []netip.Addr `json:"gateways"`
	// OFPort is the OpenFlow port number on the integration bridge.
	OFPort    uint32           `json:"ofPort"`
	NetworkID intent.NetworkID `json:"networkID"`
	MTU       int              `json:"mtu"`
	Created   time.Time        `json:"created"`

	// NetworkName is the Coelan Network; what an older release recorded is on the default one.
	NetworkName string `json:"networkName,omitempty"`
	// BlockSpace says that addresses are unique in their Network only, not in the node's podCIDRs.
	BlockSpace bool `json:"blockSpace,omitempty"`
	// Primary says that it is the pod's first interface.
	Primary bool `json:"primary,omitempty"`
	// DefaultRoutes are the gateways of the default routes through the interface: at most one of each family.
	DefaultRoutes []netip.Addr `json:"defaultRoutes,omitempty"`
	Routes        []Route      `json:"routes,omitempty"`
	// NodeAddresses stand for the interface in the node's podCIDRs and carry their length; NodeGateways has the gateway
	// for each.
	NodeAddresses []netip.Prefix `json:"nodeAddresses,omitempty"`
	NodeGateways  []netip.Addr   `json:"nodeGateways,omitempty"`
	// FixedAddresses and FixedMAC say that they were asked for.
	FixedAddresses bool `json:"fixedAddresses,omitempty"`
	FixedMAC       bool `json:"fixedMAC,omitempty"`
	// PortName is the name of the Port object in the pod's namespace.
	PortName string `json:"portName,omitempty"`
	// NAD is namespace/name of the NetworkAttachmentDefinition that asked for it.
	NAD string     `json:"nad,omitempty"`
	DNS *types.DNS `json:"dns,omitempty"`
}

// Route leads from a pod to a prefix.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	// NextHop that is not valid stands for the interface's gateway.
	NextHop netip.Addr `json:"nextHop,omitzero"`
}

// PodRef names the pod with the interface: namespace/name/interface; or the user's Port: namespace/name.
func (a Attachment) PodRef() string {
	if a.IsPort() {
		return a.PortKey()
	}
	return a.PodNamespace + "/" + a.PodName + "/" + a.IfName
}

// PortKey is the Port object's namespace/name.
func (a Attachment) PortKey() string { return a.PodNamespace + "/" + a.PortName }

// space is where the addresses are unique: a Network, or the node's podCIDRs, which is "".
func (a Attachment) space() string {
	if a.BlockSpace {
		return a.NetworkName
	}
	return ""
}

// clone protects what the store holds from changes by callers.
func (a Attachment) clone() Attachment {
	a.Addresses = slices.Clone(a.Addresses)
	a.Gateways = slices.Clone(a.Gateways)
	a.DefaultRoutes = slices.Clone(a.DefaultRoutes)
	a.Routes = slices.Clone(a.Routes)
	a.NodeAddresses = slices.Clone(a.NodeAddresses)
	a.NodeGateways = slices.Clone(a.NodeGateways)
	return a
}

// modernised fills in what an older release did not record.
func (a Attachment) modernised() Attachment {
	if a.NetworkName != "" {
		return a
	}
	a.NetworkName, a.Primary = intent.DefaultNetworkName, true
	a.DefaultRoutes = slices.Clone(a.Gateways)
	a.PortName = PortName(a.PodName, a.IfName)
	return a
}

// HostInterface is the name of the host's end for a key: "co" and 12 hexadecimal
// digits of its SHA-256, which fits the kernel's 15 bytes.
func HostInterface(k Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "co" + hex.EncodeToString(sum[:6])
}
