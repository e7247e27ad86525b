// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"slices"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/version"
)

func (d *Diagnostics) status() agentapi.Status {
	state := d.Intent.State()
	local := state.Local()
	own, _ := state.Nodes().Get(d.Node)
	s := agentapi.Status{
		Node: d.Node, Version: version.String(), Since: d.Since,
		Ready: d.Conditions.Ready() == nil, Conditions: d.Conditions.All(),
		Backend:       string(d.Config.Backend.Type),
		Encapsulation: string(d.Config.Encapsulation), MTU: local.MTU, PodCIDRs: own.Prefixes(),
		Peers: []agentapi.Peer{}, Policies: d.policyStatus(),
		Problems: slices.Concat(d.Problems(), d.Services.Problems()),
	}
	for range state.PortsAt(d.Node) {
		s.Ports++
	}
	if d.Configuration != nil {
		s.Configuration = d.Configuration()
		s.Problems = append(s.Problems, configurationProblems(s.Configuration)...)
	}
	d.Backend.Report(&s)
	s.Problems = append(s.Problems, policyProblems(s.Policies)...)
	if local.TunnelIP.IsValid() {
		s.TunnelIP = local.TunnelIP.String()
	}
	for n := range state.Nodes().All() {
		if n.Name != own.Name {
			s.Peers = append(s.Peers, peer(local, n))
		}
	}
	return s
}

func (d *Diagnostics) policyStatus() agentapi.PolicyStatus {
	p := agentapi.PolicyStatus{Mode: string(d.Config.Policy.Mode)}
	if d.Policies == nil {
		return p
	}
	s := d.Policies()
	p.Connected, p.Controller, p.Since, p.Complete = s.Connected, s.Controller, s.Since, s.Complete
	p.Version, p.Programmed, p.Error, p.SaveError = s.Version, s.Programmed, s.LastError, s.SaveError
	return p
}

func peer(local intent.Local, n intent.Node) agentapi.Peer {
	p := agentapi.Peer{Node: n.Name, Addresses: n.Addresses, PodCIDRs: n.Prefixes()}
	if a := n.AddressIn(local.TunnelIP); local.Encapsulation.Tunneled() && a.IsValid() {
		p.TunnelIP = a.String()
	}
	return p
}

// configurationProblems are the parts of c that an administrator has to know.
func configurationProblems(c agentapi.ConfigurationStatus) []string {
	var list []string
	if c.Refused != "" {
		list = append(list, "configuration: refused is "+c.Refused)
	}
	if c.Problem != "" {
		list = append(list, "configuration: no controller says which holds, the last one stays: "+c.Problem)
	}
	return list
}

// policyProblems are the parts of p that people have to know.
func policyProblems(p agentapi.PolicyStatus) []string {
	var list []string
	if p.Mode != string(config.EnforcedPolicies) {
		return nil
	}
	if !p.Connected {
		known := "what was known is enforced"
		if p.Error != "" {
			known = p.Error + "; " + known
		}
		list = append(list, "policies: no controller tells of changes: "+known)
	}
	if p.SaveError != "" {
		list = append(list, "policies: they are not on disk for the next start: "+p.SaveError)
	}
	const shown = 10
	for i, c := range p.Closed {
		if i == shown {
			list = append(list, fmt.Sprintf("policies: %d more ports are closed", len(p.Closed)-shown))
			break
		}
		list = append(list, "port "+c.Port+" is closed: "+c.Reason)
	}
	return list
}
