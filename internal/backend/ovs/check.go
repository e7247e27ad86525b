// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
)

// checker compares attachments with ports, and flows with intent.
type checker struct {
	config   config.Config
	ports    *ports
	uplinks  *uplinks
	flows    *flows
	tracking *tracking
	refusals *refusalReports
}

// findings says what is not as it should be, and how many ports the bridge has. Interfaces that are
// being attached or detached right now are left out.
func (c *checker) findings(ctx context.Context) (found []agentapi.Finding, ports int, err error) {
	own, err := c.ports.db.Ports(ctx)
	if err != nil {
		return nil, 0, err
	}
	guests, err := c.ports.db.Interfaces(ctx, c.config.Bridge, idInterface)
	if err != nil {
		return nil, 0, err
	}
	bridges, err := c.ports.db.Bridges(ctx)
	if err != nil {
		return nil, 0, err
	}
	m := &comparison{
		checker: c, own: byName(own), ports: map[string]ovsdb.PortState{}, guests: byName(guests),
		attachments: map[string]attachment.Attachment{},
	}
	for _, p := range own {
		if p.Bridge == c.config.Bridge {
			m.ports[p.Name] = p
		}
	}
	for _, at := range c.ports.attachments.List() {
		m.attachments[podPort(at).Name] = at
	}
	m.compareAttachments()
	m.comparePorts()
	m.comparePodBridges(bridges)
	for physical := range c.uplinks.numbers {
		if err := c.uplinks.connected(physical); err != nil {
			m.findings.Add("network", physical, "%v", err)
		}
	}
	m.compareFlows(ctx)
	m.compareConnections(ctx)
	for _, r := range c.refusals.list() {
		m.findings.Add("refused", r.Kind+" "+r.Name, "the switch refuses it: %s: %s: %s", r.Error, r.Effect, r.Rule)
	}
	return m.findings, len(m.ports), nil
}

// comparison is one run of a checker.
type comparison struct {
	*checker
	own         map[string]ovsdb.PortState // Coelan's ports of all bridges
	ports       map[string]ovsdb.PortState // those of the agent's bridge
	guests      map[string]ovsdb.PortState // interfaces of users' Ports, which Coelan does not make
	attachments map[string]attachment.Attachment
	findings    agentapi.Findings
}

// busy says that an interface is being worked on, so that a difference means nothing.
func (c *comparison) busy(name string) bool { return c.checker.ports.interfaces.Held(name) }

func (c *comparison) compareAttachments() {
	for _, at := range c.attachments {
		switch problem := c.checker.ports.problem(at, c.own); {
		case c.busy(at.HostInterface):
		case at.IsPort():
			c.compareGuest(at)
		case problem != nil:
			c.findings.Add("port", problem.port, "of %s %s", at.PodRef(), problem.text)
		}
	}
}

// comparePodBridges finds what is beside pods on the bridges that their network configurations
// name.
func (c *comparison) comparePodBridges(bridges []ovsdb.BridgeState) {
	known := map[string]bool{}
	for _, at := range c.attachments {
		for _, p := range podPorts(c.config.Bridge, at) {
			known[p.Bridge+" "+p.Name] = true
		}
	}
	for _, b := range bridges {
		if !isPodBridge(b) {
			continue
		}
		for _, name := range b.Ports {
			_, own := c.own[name]
			switch {
			case name == b.Name || known[b.Name+" "+name]:
			case own:
				c.findings.Add("port", name, "on bridge %s belongs to no pod", b.Name)
			default:
				c.findings.Add("port", name, "on bridge %s is not Coelan's: unless a mirror sends to it, it gets what "+
					"pods send, and sends to them, past policies: remove it", b.Name)
			}
		}
	}
}

// compareGuest checks a user's Port. Its interface is not Coelan's.
func (c *comparison) compareGuest(at attachment.Attachment) {
	switch p, ok := c.guests[at.HostInterface]; {
	case at.Dynamic && (!ok || p.Actual < 0):
		// Its machine is away, and may come back until its lease has expired.
	case !ok || p.Actual != int(at.OFPort):
		c.findings.Add("port", at.HostInterface, "of %s is missing on bridge %s, or has OpenFlow port %d instead of %d",
			at.PortKey(), c.config.Bridge, p.Actual, at.OFPort)
	}
}

// broken says that a port does not work. One that has just been made is not: the database learns
// its number late.
func broken(p ovsdb.PortState) bool { return !p.Ready() && p.Actual != 0 }

func (c *comparison) comparePorts() {
	known := map[string]bool{}
	ports := infrastructure(c.config, c.checker.ports.intent.State().Local())
	for _, u := range c.uplinks.ports() {
		if c.uplinks.connected(u.physical) == nil {
			ports = append(ports, u.inner)
		}
		known[u.inner.Name] = true
	}
	for _, p := range ports {
		known[p.Name] = true
		if st, ok := c.ports[p.Name]; !ok || !st.Ready() {
			c.findings.Add("port", p.Name, "is missing on bridge %s or does not work: %s", c.config.Bridge, st.Error)
		}
	}
	for name, p := range c.ports {
		if _, ok := c.attachments[name]; !ok && !known[name] && !c.busy(name) {
			c.findings.Add("port", name, "belongs to no pod; it was of %s", p.ExternalIDs[idInterface])
		}
	}
}

func (c *comparison) compareFlows(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	lines, err := c.flows.diff(ctx)
	if err != nil {
		c.findings.Add("flow", c.config.Bridge, "the bridge's flows cannot be read: %v", err)
	}
	problems := map[byte]string{'+': "is missing", '-': "belongs to nothing", '~': "is not as it should be"}
	for _, line := range lines {
		c.findings.Add("flow", line[2:], "%s", problems[line[0]])
	}
}
