// SPDX-License-Identifier: Apache-2.0

// Package attachment is the node's durable store of attached interfaces, which survives restarts
// and power loss. It allocates what each interface needs: one address of every family and an
// OpenFlow port number.
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

// Key identifies an attachment: the container id that the runtime chose, which it never uses again,
// and the name of the interface in the pod. PortKey makes the key of a user's Port.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// String is the key as messages and indexes have it: container id/interface.
func (k Key) String() string { return k.ContainerID + "/" + k.IfName }

// Spec is what is known of an attachment before the Store chooses addresses for it: of which pod it
// is, where, and what the user or the Network asks for. Plan and Attachment embed it, so that no
// field is copied from one to the other.
type Spec struct {
	Key
	// ConfName is the name in the CNI configuration that the attachment was asked by; GC of one
	// configuration leaves the attachments of others alone.
	ConfName string `json:"network"`
	// MadeWith is the interface that this one is added and deleted with; empty: it has an ADD and a
	// DEL of its own.
	MadeWith string `json:"madeWith,omitempty"`

	PodUID       string `json:"podUID"`
	PodNamespace string `json:"podNamespace"`
	PodName      string `json:"podName"`
	// Netns is the path of the pod's network namespace as the runtime named it.
	Netns string `json:"netns"`

	// HostInterface is the name of the host's end of the pod's veth pair, or of a user's interface;
	// empty in a Plan: it is made from the key.
	HostInterface string           `json:"hostInterface"`
	NetworkID     intent.NetworkID `json:"networkID"`
	MTU           int              `json:"mtu"`

	// Bridge is the bridge that HostInterface is a port of, and from which a wire leads to the
	// integration bridge; empty: the integration bridge itself.
	Bridge string `json:"bridge,omitempty"`

	// NetworkName is the Coelan Network; empty in a Plan, or in what an older release
	// recorded: the default one.
	NetworkName string `json:"networkName,omitempty"`
	// BlockSpace says that addresses are unique in their Network only, not in the node's podCIDRs.
	BlockSpace bool `json:"blockSpace,omitempty"`
	// Primary says that it is the pod's first interface.
	Primary bool `json:"primary,omitempty"`
	// Beside default routes and those to the interface's own subnets.
	Routes []Route `json:"routes,omitempty"`
	// PortName is the name of the Port object in the pod's namespace; empty in a Plan: it is made
	// from the pod's name.
	PortName string `json:"portName,omitempty"`
	// Dynamic says that it is of a Port that the agent has made for a machine: its addresses are of
	// this node's blocks.
	Dynamic bool `json:"dynamic,omitempty"`
	// Leased says that a DHCP server of the physical network gives the address.
	Leased bool `json:"leased,omitempty"`
	// NAD is namespace/name of the NetworkAttachmentDefinition that asked for it.
	NAD string     `json:"nad,omitempty"`
	DNS *types.DNS `json:"dns,omitempty"` // of the Network
	// NeutronPort is the UUID of the port in Neutron that the container runtime has named; empty:
	// none.
	NeutronPort string `json:"neutronPort,omitempty"`
	// HostPorts are the node's ports that lead to the pod. What an older release recorded has none:
	// portmap has made them.
	HostPorts []HostPort `json:"hostPorts,omitempty"`
}

// Attachment is one interface of one pod, or a user's Port, see PortKey. It is a value: what a
// Store returns can be kept and changed without harm. Its JSON is what is on disk: see
// docs/operate/install.md about other releases.
type Attachment struct {
	Spec
	MAC intent.MAC `json:"mac"`
	// Addresses carry the length of the subnet they are from. Those that were not asked for are one
	// of each family, in the order of the ranges.
	Addresses []netip.Prefix `json:"addresses"`
	// Gateways has one gateway for each address; an invalid one if the subnet has none.
	Gateways []netip.Addr `json:"gateways"`
	// OFPort is the OpenFlow port number on the integration bridge.
	OFPort uint32 `json:"ofPort"`
	// VLAN keeps the frames of the attachments of one Bridge apart: no two have the same, 1 to
	// 4094; 0 without Bridge.
	VLAN    uint16    `json:"vlan,omitempty"`
	Created time.Time `json:"created"`

	// DefaultRoutes are the gateways of the default routes through the interface: at most
	// one of each family.
	DefaultRoutes []netip.Addr `json:"defaultRoutes,omitempty"`
	// NodeAddresses stand for the interface in the node's podCIDRs and carry their length;
	// NodeGateways has the gateway for each.
	NodeAddresses []netip.Prefix `json:"nodeAddresses,omitempty"`
	NodeGateways  []netip.Addr   `json:"nodeGateways,omitempty"`
	// FixedAddresses and FixedMAC say that they were asked for.
	FixedAddresses bool `json:"fixedAddresses,omitempty"`
	FixedMAC       bool `json:"fixedMAC,omitempty"`
}

// HostPort is a port of the node's addresses that leads to a port of the pod.
type HostPort struct {
	Protocol intent.Protocol `json:"protocol"`
	HostPort uint16          `json:"hostPort"`
	Port     uint16          `json:"port"` // of the pod
	// HostIP is the node's address that has the port; not valid: all. An unspecified one:
	// all of its family.
	HostIP netip.Addr `json:"hostIP,omitzero"`
}

// PodRef names the pod with the interface: namespace/name/interface; or the
// user's Port: namespace/name.
func (s Spec) PodRef() string {
	if s.IsPort() {
		return s.PortKey()
	}
	return s.PodNamespace + "/" + s.PodName + "/" + s.IfName
}

// PortKey is the Port object's namespace/name.
func (s Spec) PortKey() string { return s.PodNamespace + "/" + s.PortName }

// space is where the addresses are unique: a Network, or the node's podCIDRs, which is "".
func (s Spec) space() string {
	if s.BlockSpace {
		return s.NetworkName
	}
	return ""
}

func (s Spec) clone() Spec {
	s.Routes = slices.Clone(s.Routes)
	s.HostPorts = slices.Clone(s.HostPorts)
	return s
}

// clone protects what the store holds from changes by callers.
func (a Attachment) clone() Attachment {
	a.Spec = a.Spec.clone()
	a.Addresses = slices.Clone(a.Addresses)
	a.Gateways = slices.Clone(a.Gateways)
	a.DefaultRoutes = slices.Clone(a.DefaultRoutes)
	a.NodeAddresses = slices.Clone(a.NodeAddresses)
	a.NodeGateways = slices.Clone(a.NodeGateways)
	return a
}

// modernized fills in what an older release did not record.
func (a Attachment) modernized() Attachment {
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
