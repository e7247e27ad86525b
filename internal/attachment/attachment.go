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

	"coelan.io/coelan/internal/intent"
)

// Key identifies an attachment: the container id that the runtime chose, which
// it never uses again, and the name of the interface in the pod.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// String is the key as messages and indexes have it: container id/interface.
func (k Key) String() string { return k.ContainerID + "/" + k.IfName }

// Attachment is one interface of one pod. It is a value: what a Store returns
// can be kept and changed without harm.
type Attachment struct {
	Key
	// Network is the name in the CNI configuration that the attachment was asked
	// by; GC of one network leaves those of others alone.
	Network string `json:"network"`

	PodUID       string `json:"podUID"`
	PodNamespace string `json:"podNamespace"`
	PodName      string `json:"podName"`
	// Netns is the path of the pod's network namespace as the runtime named it.
	Netns string `json:"netns"`

	// HostInterface is the name of the host's end of the pod's veth pair.
	HostInterface string     `json:"hostInterface"`
	MAC           intent.MAC `json:"mac"`
	// Addresses carry the length of the podCIDR they are from, in the order of
	// the node's podCIDRs: one or two.
	Addresses []netip.Prefix `json:"addresses"`
	// Gateways has one gateway for each address.
	Gateways []netip.Addr `json:"gateways"`
	// OFPort is the OpenFlow port number on the integration bridge.
	OFPort    uint32           `json:"ofPort"`
	NetworkID intent.NetworkID `json:"networkID"`
	MTU       int              `json:"mtu"`
	Created   time.Time        `json:"created"`
}

// PodRef names the pod with the interface: namespace/name/interface.
func (a Attachment) PodRef() string {
	return a.PodNamespace + "/" + a.PodName + "/" + a.IfName
}

// clone protects what the store holds from changes by callers.
func (a Attachment) clone() Attachment {
	a.Addresses = slices.Clone(a.Addresses)
	a.Gateways = slices.Clone(a.Gateways)
	return a
}

// HostInterface is the name of the host's end for a key: "co" and 12 hexadecimal
// digits of its SHA-256, which fits the kernel's 15 bytes.
func HostInterface(k Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "co" + hex.EncodeToString(sum[:6])
}
