// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
)

// LogicalPorts are the names of Logical_Switch_Ports in OVN's northbound database, which are the
// external_ids:iface-id of interfaces. The methods are safe for concurrent use.
type LogicalPorts interface {
	// Port is that of an attachment, and the VLAN in which it leaves a machine of OpenStack, which
	// is 0 on other nodes. Empty: it is not known, or not yet.
	Port(at attachment.Attachment) (logical string, vlan int)
	// Management is Port for that by which a node's kernel reaches pods.
	Management(node string) (logical string, vlan int)
	// Known reports whether it is known what the node is.
	Known() bool
	// Trunk reports whether the node is a machine of OpenStack: OVN is beyond it, and its ports
	// leave it in VLANs.
	Trunk() bool
	// Guest is the namespace/name of the Port that another program's interface is plugged for, or
	// another name of it; false if it is plugged for none of this cluster.
	Guest(logical string) (string, bool)
	// Trace is the command that follows a packet in OVN, without the packet.
	Trace(n intent.Network, node string) string
	// Changed is closed when a name may be another than at the time of the call; nil: that does
	// not happen.
	Changed() <-chan struct{}
	// Run calls changed after each change, until ctx ends.
	Run(ctx context.Context, changed func()) error
}

// clusterPorts are those that Coelan's controller makes: their names follow from those of objects.
type clusterPorts struct{ cluster names.Cluster }

// Port implements LogicalPorts.
func (p clusterPorts) Port(at attachment.Attachment) (string, int) {
	return p.cluster.Port(at.PortKey()), 0
}

// Management implements LogicalPorts.
func (p clusterPorts) Management(node string) (string, int) {
	return p.cluster.ManagementPort(node), 0
}

// Known implements LogicalPorts.
func (clusterPorts) Known() bool { return true }

// Trunk implements LogicalPorts.
func (clusterPorts) Trunk() bool { return false }

// Guest implements LogicalPorts. With a cluster's name, only those of this cluster are its.
func (p clusterPorts) Guest(logical string) (string, bool) {
	return strings.CutPrefix(logical, p.cluster.Port(""))
}

// Trace implements LogicalPorts.
func (p clusterPorts) Trace(n intent.Network, node string) string {
	if !n.FromNodes() {
		node = ""
	}
	return fmt.Sprintf("ovn-trace %s", p.cluster.Switch(n.Name, node))
}

// Changed implements LogicalPorts.
func (clusterPorts) Changed() <-chan struct{} { return nil }

// Run implements LogicalPorts.
func (clusterPorts) Run(context.Context, func()) error { return nil }
