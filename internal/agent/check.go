// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/agent/bind"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// Check is the answer to GET /v1/check.
type Check struct {
	// OK says that there are no findings.
	OK bool `json:"ok"`
	// Attachments, Ports and Interfaces are how many were looked at.
	Attachments int       `json:"attachments"`
	Ports       int       `json:"ports"`
	Interfaces  int       `json:"interfaces"`
	Findings    []Finding `json:"findings"`
}

// Finding is one thing that is there and should not be, or the other way round.
type Finding struct {
	// Kind is port, interface, attachment, address, network, flow or condition.
	Kind string `json:"kind"`
	// Object is its name: a port, an interface, namespace/pod/interface, an address, a flow as ovs-ofctl prints it.
	Object string `json:"object"`
	// Problem says what is wrong.
	Problem string `json:"problem"`
}

// What is being changed while it is looked at may look wrong: a finding counts if it is there each time.
const (
	checkLooks = 3
	checkPause = 300 * time.Millisecond
)

// check compares attachments, host interfaces, ports and flows with each other.
func (a *Agent) check(ctx context.Context) (Check, error) {
	c, err := a.look(ctx)
	for range checkLooks - 1 {
		if err != nil || len(c.Findings) == 0 {
			break
		}
		wait(ctx, checkPause, nil)
		var again Check
		if again, err = a.look(ctx); err == nil {
			again.Findings = slices.DeleteFunc(again.Findings, func(f Finding) bool { return !slices.Contains(c.Findings, f) })
			c = again
		}
	}
	c.OK = len(c.Findings) == 0
	return c, err
}

// look compares once. Pods that are being started or stopped right now are left out.
func (a *Agent) look(ctx context.Context) (Check, error) {
	ports, err := a.db.Ports(ctx)
	if err != nil {
		return Check{}, err
	}
	links, err := a.plumber.Existing()
	if err != nil {
		return Check{}, err
	}
	c := &checker{
		agent: a, ports: map[string]ovsdb.PortState{}, guests: map[string]ovsdb.PortState{}, links: links,
		attachments: map[string]attachment.Attachment{},
	}
	guests, err := a.db.Interfaces(ctx, a.cfg.Bridge, bind.IfaceID)
	if err != nil {
		return Check{}, err
	}
	for _, p := range ports {
		if p.Bridge == a.cfg.Bridge {
			c.ports[p.Name] = p
		}
	}
	for _, p := range guests {
		c.guests[p.Name] = p
	}
	for _, at := range a.store.List() {
		c.attachments[at.HostInterface] = at
	}
	c.compareAttachments()
	c.comparePorts()
	c.compareLinks()
	c.compareNetworks()
	c.compareFlows(ctx)
	if err := a.conditions.notReady(); err != nil {
		c.find("condition", a.opts.NodeName, "%v", err)
	}
	return Check{
		Attachments: len(c.attachments), Ports: len(c.ports), Interfaces: len(links),
		Findings: append([]Finding{}, c.findings...),
	}, nil
}

type checker struct {
	agent       *Agent
	ports       map[string]ovsdb.PortState
	guests      map[string]ovsdb.PortState // somebody else's, of users' Ports
	links       map[string]bool
	attachments map[string]attachment.Attachment
	findings    []Finding
}

func (c *checker) find(kind, object, format string, args ...any) {
	c.findings = append(c.findings, Finding{kind, object, fmt.Sprintf(format, args...)})
}

// busy says that somebody is working on the interface, so that a difference means nothing.
func (c *checker) busy(name string) bool {
	if !c.agent.names.try(name) {
		return true
	}
	c.agent.names.unlock(name)
	return false
}

func (c *checker) compareAttachments() {
	type place struct {
		network string // "" for the nodes' podCIDRs
		addr    netip.Addr
	}
	owner := map[place]string{}
	for name, at := range c.attachments {
		network := ""
		if at.BlockSpace {
			network = at.NetworkName
		}
		places := make([]place, 0, len(at.Addresses)+len(at.NodeAddresses))
		for _, p := range at.Addresses {
			places = append(places, place{network, p.Addr()})
		}
		for _, p := range at.NodeAddresses {
			places = append(places, place{"", p.Addr()})
		}
		for _, p := range places {
			if other, taken := owner[p]; taken {
				c.find("address", p.addr.String(), "belongs to %s and to %s", at.PodRef(), other)
			}
			owner[p] = at.PodRef()
		}
		switch {
		case c.busy(name):
		case at.IsPort():
			c.compareGuest(at)
		default:
			c.compareAttachment(at)
		}
	}
}

// compareGuest looks at a user's Port. Its interface is somebody else's.
func (c *checker) compareGuest(at attachment.Attachment) {
	if p, ok := c.guests[at.HostInterface]; !ok || p.Actual != int(at.OFPort) {
		c.find("port", at.HostInterface, "of %s is missing on bridge %s, or has OpenFlow port %d instead of %d",
			at.PortKey(), c.agent.cfg.Bridge, p.Actual, at.OFPort)
	}
	if _, ok := c.agent.intent.State().Ports().Get(at.Key.String()); !ok {
		c.find("attachment", at.PortKey(), "is bound but has no flows")
	}
}

// compareNetworks looks whether the Networks of attachments are in effect, whether their addresses are of blocks of this
// node, and whether physical networks are connected.
func (c *checker) compareNetworks() {
	s, state := c.agent.view.State(), c.agent.intent.State()
	for _, at := range c.attachments {
		if at.NetworkName == "" {
			continue // of an older release: on the default Network
		}
		if _, ok := state.Networks().Get(at.NetworkName); !ok {
			c.find("network", at.NetworkName, "of %s is not in effect: it does not exist, or is not ready", at.PodRef())
		}
		if !at.BlockSpace || at.FixedAddresses || at.IsPort() || !s.Listed(kube.Blocks) {
			continue
		}
		for _, p := range at.Addresses {
			if !c.ownBlock(state, at.NetworkName, p.Addr()) {
				c.find("address", p.Addr().String(), "of %s is in no block of this node: other nodes do not find it", at.PodRef())
			}
		}
	}
	for physical := range c.agent.uplinks {
		if err := c.agent.connected(physical); err != nil {
			c.find("network", physical, "%v", err)
		}
	}
}

func (c *checker) ownBlock(s *intent.State, network string, a netip.Addr) bool {
	for b := range s.BlocksOf(network) {
		if b.Node == c.agent.opts.NodeName && b.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

func (c *checker) compareAttachment(at attachment.Attachment) {
	if _, ok := c.agent.intent.State().Ports().Get(at.Key.String()); !ok {
		c.find("attachment", at.PodRef(), "has addresses but was never attached: a request for it is under way, or was left")
	}
	switch p, ok := c.ports[at.HostInterface]; {
	case !ok:
		c.find("port", at.HostInterface, "of %s is missing on bridge %s", at.PodRef(), c.agent.cfg.Bridge)
	case broken(p):
		c.find("port", at.HostInterface, "of %s has OpenFlow port %d instead of %d: %s", at.PodRef(), p.Actual, at.OFPort, p.Error)
	}
	switch node, err := (dataplane{c.agent}).Node(); {
	case c.agent.plumber.Gone(at.Netns):
		c.find("attachment", at.PodRef(), "its network namespace %s is gone, its addresses are taken by nobody", at.Netns)
	case err == nil:
		if err := c.agent.plumber.Check(node.Interface(at)); err != nil {
			c.find("interface", at.HostInterface, "of %s: %s", at.PodRef(), strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// broken says that a port does not work. One that has just been made is not: the database learns its number late.
func broken(p ovsdb.PortState) bool { return !p.Ready() && p.Actual != 0 }

func (c *checker) comparePorts() {
	known := map[string]bool{}
	ports := infrastructure(c.agent.cfg, c.agent.intent.State().Local())
	for _, u := range c.agent.uplinkPorts() {
		if c.agent.connected(u.physical) == nil {
			ports = append(ports, u.inner)
		}
		known[u.inner.Name] = true
	}
	for _, p := range ports {
		known[p.Name] = true
		if st, ok := c.ports[p.Name]; !ok || !st.Ready() {
			c.find("port", p.Name, "is missing on bridge %s or does not work: %s", c.agent.cfg.Bridge, st.Error)
		}
	}
	for name, p := range c.ports {
		if _, ok := c.attachments[name]; !ok && !known[name] && !c.busy(name) {
			c.find("port", name, "belongs to no pod; it was of %s", p.ExternalIDs[idInterface])
		}
	}
}

func (c *checker) compareLinks() {
	for name := range c.links {
		if _, ok := c.attachments[name]; !ok && !c.busy(name) {
			c.find("interface", name, "belongs to no pod")
		}
	}
}

func (c *checker) compareFlows(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	lines, err := c.agent.flows.diff(ctx)
	if err != nil {
		c.find("flow", c.agent.cfg.Bridge, "the bridge's flows cannot be read: %v", err)
	}
	problems := map[byte]string{'+': "is missing", '-': "belongs to nothing", '~': "is not as it should be"}
	for _, line := range lines {
		c.find("flow", line[2:], "%s", problems[line[0]])
	}
}
