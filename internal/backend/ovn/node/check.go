// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
)

// Findings compares attachments with ports and with what OVN has bound, and adds to a check what is
// not as it should be, and how many ports of Coelan's the bridge has. Interfaces that are being
// attached or detached right now are left out.
func (b *Backend) Findings(ctx context.Context, c *agentapi.Check) error {
	states, err := b.ports.states(ctx)
	if err != nil {
		return err
	}
	own, err := b.db.Ports(ctx)
	if err != nil {
		return err
	}
	ids, err := b.db.ExternalIDs(ctx)
	if err != nil {
		return err
	}
	c.Ports = len(own)
	wanted := map[string]bool{b.Config.GatewayInterface: true, machinePort: true}
	ports := []logicalPort{b.compareManagement(states, &c.Findings)}
	for _, at := range b.Attachments.List() {
		wanted[at.HostInterface] = true
		ports = append(ports, b.compareAttachment(at, states, &c.Findings))
	}
	for _, p := range own {
		if !wanted[p.Name] && !b.Interfaces.Held(p.Name) {
			c.Findings.Add("port", p.Name, "on bridge %s belongs to no pod", p.Bridge)
		}
	}
	if !b.logical.Trunk() { // no bindings are this node's
		b.compareSouthbound(ctx, ids, ports, c)
	}
	return nil
}

// compareAttachment looks at the interface of an attachment, and says what OVN is to have of it.
func (b *Backend) compareAttachment(
	at attachment.Attachment, states map[string]ovsdb.PortState, found *agentapi.Findings,
) logicalPort {
	st, ok := states[at.HostInterface]
	logical, vlan := b.ports.name(at, st)
	p := logicalPort{name: logical, of: at.PodRef(), link: at.HostInterface}
	switch {
	case b.Interfaces.Held(at.HostInterface), !ok && at.Dynamic:
		// A dynamic Port may wait for its machine to come back.
	case !ok:
		found.Add("port", at.HostInterface, "of %s is missing on bridge %s", at.PodRef(), b.Config.Bridge)
	case p.name != "" && st.ExternalIDs[idInterface] != p.name:
		found.Add("port", at.HostInterface, "of %s is plugged as %s, not as %s", at.PodRef(),
			st.ExternalIDs[idInterface], p.name)
	case st.VLAN == 0 && b.logical.Trunk():
		found.Add("port", at.HostInterface, "of %s is in no VLAN, and has the packets of all: does coelan-controller run?",
			at.PodRef())
	case p.name != "" && st.VLAN != vlan && b.logical.Trunk():
		found.Add("port", at.HostInterface, "of %s is in VLAN %d, not in %d", at.PodRef(), st.VLAN, vlan)
	default:
		p.plugged = true
		b.compareInstalled(st, "of "+at.PodRef(), found)
	}
	return p
}

// compareManagement is compareAttachment for the node's own port.
func (b *Backend) compareManagement(states map[string]ovsdb.PortState, found *agentapi.Findings) logicalPort {
	link := b.Config.GatewayInterface
	st, ok := states[link]
	logical, _ := b.logical.Management(b.Node)
	p := logicalPort{name: logical, of: "node " + b.Node, link: link, plugged: ok}
	if !ok {
		found.Add("port", link, "of the node is missing on bridge %s", b.Config.Bridge)
		return p
	}
	b.compareInstalled(st, "of the node", found)
	return p
}

// compareInstalled looks whether an interface works, and whether ovn-controller has connected it.
func (b *Backend) compareInstalled(st ovsdb.PortState, of string, found *agentapi.Findings) {
	switch {
	case !st.Ready():
		found.Add("port", st.Name, "%s does not work: %s", of, st.Error)
	case !b.ports.connected(st):
		found.Add("port", st.Name, "%s is not connected by OVN, as external_ids:%s would say: does ovn-controller run, "+
			"and ovn-northd?", of, idInstalled)
	}
}
