// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/version"
)

// Status is the answer to GET /v1/status.
type Status struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Ready   bool      `json:"ready"`
	// Conditions are the reasons why a condition is not met, by its name; empty for one that is met.
	Conditions    map[string]string `json:"conditions"`
	OVS           OVSStatus         `json:"ovs"`
	Encapsulation string            `json:"encapsulation"`
	TunnelIP      string            `json:"tunnelIP,omitempty"`
	MTU           int               `json:"mtu"`
	PodCIDRs      []netip.Prefix    `json:"podCIDRs"`
	Peers         []Peer            `json:"peers"`
	Ports         int               `json:"ports"`
	Sync          syncStatus        `json:"sync"`
	Host          hostnet.Status    `json:"host"`
	Policies      PolicyStatus      `json:"policies"`
	// Problems are objects of which not everything could be put into effect.
	Problems []string `json:"problems"`
}

// OVSStatus is what runs below.
type OVSStatus struct {
	Version   string `json:"version"`
	Bridge    string `json:"bridge"`
	Datapath  string `json:"datapath"`
	Connected bool   `json:"connected"`
}

// Peer is another node and how its pods are reached.
type Peer struct {
	Node      string         `json:"node"`
	Addresses []netip.Addr   `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	TunnelIP  string         `json:"tunnelIP,omitempty"`
}

func (a *Agent) status() Status {
	state := a.intent.State()
	local := state.Local()
	own, _ := state.Nodes().Get(a.opts.NodeName)
	unmet := a.conditions.notReady()
	a.mu.Lock()
	info, left, problems := a.info, a.left, []string{}
	for _, p := range slices.Concat(a.problems, a.networkProblems) {
		problems = append(problems, p.Error())
	}
	a.mu.Unlock()
	problems = append(problems, a.services.Problems()...)
	for _, p := range a.flows.problems() {
		problems = append(problems, p.Error())
	}
	if left != "" {
		problems = append(problems, strings.Split(left, "\n")...)
	}
	policed := a.policyStatus(state)
	s := Status{
		Node: a.opts.NodeName, Version: version.String(), Since: a.since,
		Ready: unmet == nil, Conditions: a.conditions.all(),
		OVS: OVSStatus{
			Version: info.Version.String(), Bridge: a.cfg.Bridge, Datapath: string(local.Datapath), Connected: a.flows.connected(),
		},
		Encapsulation: string(a.cfg.Encapsulation), MTU: local.MTU, PodCIDRs: podCIDRs(own),
		Peers: []Peer{}, Ports: localPorts(state), Sync: a.flows.status(), Host: a.host.Status(), Policies: policed,
		Problems: append(problems, policed.problems()...),
	}
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

func peer(local intent.Local, n intent.Node) Peer {
	p := Peer{Node: n.Name, Addresses: n.Addresses, PodCIDRs: podCIDRs(n)}
	if a := n.AddressIn(local.TunnelIP); local.Encapsulation.Tunnelled() && a.IsValid() {
		p.TunnelIP = a.String()
	}
	return p
}
