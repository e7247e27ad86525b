// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
)

// What is being changed while it is checked may look wrong: a finding counts if it
// is there each time.
const (
	checkLooks = 3
	checkPause = 300 * time.Millisecond
)

// check compares attachments, host interfaces, ports and flows with each other.
func (d *Diagnostics) check(ctx context.Context) (agentapi.Check, error) {
	c, err := d.look(ctx)
	for range checkLooks - 1 {
		if err != nil || len(c.Findings) == 0 {
			break
		}
		retry.Sleep(ctx, checkPause)
		var again agentapi.Check
		if again, err = d.look(ctx); err == nil {
			again.Findings = slices.DeleteFunc(again.Findings, func(f agentapi.Finding) bool {
				return !slices.Contains(c.Findings, f)
			})
			c = again
		}
	}
	c.OK = len(c.Findings) == 0
	return c, err
}

// look compares once. Pods that are being started or stopped right now are left out.
func (d *Diagnostics) look(ctx context.Context) (agentapi.Check, error) {
	result := agentapi.Check{Backend: string(d.Config.Backend.Type), MTU: d.Intent.State().Local().MTU}
	if err := d.Backend.Findings(ctx, &result); err != nil {
		return agentapi.Check{}, err
	}
	links, err := d.Links.Existing()
	if err != nil {
		return agentapi.Check{}, err
	}
	c := &checker{Diagnostics: d, links: links, attachments: map[string]attachment.Attachment{}}
	for _, at := range d.Store.List() {
		c.attachments[at.HostInterface] = at
	}
	c.compareConfiguration()
	c.compareAttachments()
	c.compareLinks(c.compareForeign(ctx))
	c.compareNetworks()
	c.findings = append(c.findings, result.Findings...)
	if err := d.Conditions.Ready(); err != nil {
		c.findings.Add("condition", d.Node, "%v", err)
	}
	result.Attachments, result.Interfaces = len(c.attachments), len(links)
	result.Configuration, result.Findings = c.configuration, append(agentapi.Findings{}, c.findings...)
	return result, nil
}

type checker struct {
	*Diagnostics
	links       map[string]bool
	attachments map[string]attachment.Attachment
	findings    agentapi.Findings
	// configuration is the name of the NodeNetworkConfig that holds.
	configuration string
}

// busy says that an interface is being worked on, so that a difference means nothing.
func (c *checker) busy(name string) bool { return c.Interfaces.Held(name) }

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
				c.findings.Add("address", p.addr.String(), "belongs to %s and to %s", at.PodRef(), other)
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

// compareGuest checks a user's Port. Its interface is not Coelan's.
func (c *checker) compareGuest(at attachment.Attachment) {
	// A dynamic Port may wait for its machine to come back.
	if _, ok := c.Intent.State().Ports().Get(at.Key.String()); !ok && !at.Dynamic {
		c.findings.Add("attachment", at.PortKey(), "is bound but has no flows")
	}
}

// compareNetworks looks whether the Networks of attachments are in effect, and whether their
// addresses are of blocks of this node.
func (c *checker) compareNetworks() {
	s, state := c.View.State(), c.Intent.State()
	for _, at := range c.attachments {
		if at.NetworkName == "" {
			continue // of an older release: on the default Network
		}
		if _, ok := state.Networks().Get(at.NetworkName); !ok {
			c.findings.Add("network", at.NetworkName, "of %s is not in effect: it does not exist, or is not ready",
				at.PodRef())
		}
		if !at.BlockSpace || at.FixedAddresses || at.Leased || !s.Listed(kube.Blocks) {
			continue
		}
		for _, p := range at.Addresses {
			if !c.ownBlock(state, at.NetworkName, p.Addr()) {
				c.findings.Add("address", p.Addr().String(),
					"of %s is in no block of this node: other nodes do not find it", at.PodRef())
			}
		}
	}
}

func (c *checker) ownBlock(s *intent.State, network string, a netip.Addr) bool {
	for b := range s.BlocksOf(network) {
		if b.Node == c.Node && b.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

// compareConfiguration finds that the node does not run with what holds for it.
func (c *checker) compareConfiguration() {
	if c.Configuration == nil {
		return
	}
	s := c.Configuration()
	if c.configuration = s.Name; s.Refused != "" {
		c.findings.Add("configuration", "refused:", "%s", s.Refused)
	}
}

// compareMTU finds pods that are older than a change of the uplink's MTU: their largest packets do
// not fit the tunnel.
func (c *checker) compareMTU(at attachment.Attachment) {
	state := c.Intent.State()
	n, ok := state.Networks().Get(at.NetworkName)
	if most := state.Local().MTU; ok && n.Physical == "" && most != 0 && at.MTU > most {
		c.findings.Add("mtu", at.PodRef(),
			"is %d, but packets of at most %d bytes fit the node's uplink: delete the pod, so that"+
				" it starts anew", at.MTU, most)
	}
}

func (c *checker) compareAttachment(at attachment.Attachment) {
	c.compareMTU(at)
	// A dynamic Port may wait for its machine to come back.
	if _, ok := c.Intent.State().Ports().Get(at.Key.String()); !ok && !at.Dynamic {
		c.findings.Add("attachment", at.PodRef(),
			"has addresses but was never attached: a request for it is under way, or was left")
	}
	switch node, err := c.NodeSource.Node(); {
	case c.Links.Gone(at.Netns):
		c.findings.Add("attachment", at.PodRef(), "its network namespace %s is gone, its addresses are taken by nobody",
			at.Netns)
	case err == nil:
		if err := c.Links.Check(node.Interface(at)); err != nil {
			c.findings.Add("interface", at.HostInterface, "of %s: %s", at.PodRef(),
				strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// compareForeign looks at attachments on bridges of external controllers. It returns their host
// interfaces.
func (c *checker) compareForeign(ctx context.Context) map[string]bool {
	foreign, err := c.Backend.ForeignAttached(ctx)
	if err != nil {
		c.findings.Add("port", "of an external controller", "%v", err)
	}
	names := map[string]bool{}
	for _, at := range foreign {
		names[at.HostInterface] = true
		if !c.links[at.HostInterface] {
			c.findings.Add("interface", at.HostInterface, "of %s is missing", at.PodRef())
		}
	}
	return names
}

func (c *checker) compareLinks(foreign map[string]bool) {
	for name := range c.links {
		if _, ok := c.attachments[name]; !ok && !foreign[name] && !c.busy(name) {
			c.findings.Add("interface", name, "belongs to no pod")
		}
	}
}
