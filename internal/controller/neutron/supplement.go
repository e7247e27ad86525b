// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"maps"
	"strings"
	"sync"

	neutroncompile "coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/backend/ovn/northbound"
	"coelan.io/coelan/internal/controller/findings"
)

// supplement keeps in OVN's northbound database what Neutron's rows lack: Services, the way out of
// the Router default, and what lets nodes reach their Ports that policies close.
type supplement struct {
	Options
	client *northbound.Client
	report func(outcome)
	// begun is closed once all is known that Neutron has: what is made of less would take away rows
	// of the controller before this one.
	begun chan struct{}
	begin func()

	// rows and what they are made of belong to the goroutine of the client.
	rows *compile.Supplement

	mu     sync.Mutex
	others compile.Others
}

// newSupplement makes one that reports each outcome that differs from the one before.
func newSupplement(o Options, report func(outcome)) (*supplement, error) {
	begun := make(chan struct{})
	s := &supplement{
		Options: o, report: report, begun: begun, begin: sync.OnceFunc(func() { close(begun) }),
		rows: compile.NewSupplement(compile.Options{Cluster: o.Cluster}),
		others: compile.Others{
			Switches: map[string]string{}, Routers: map[string]string{}, NodePorts: map[string]string{},
			FloatingIPs: map[string]string{},
		},
	}
	to := northbound.Options{Cluster: o.Cluster, Remotes: o.Northbound, Rows: s.want, Report: s.compared, Log: o.Log}
	if o.TLS != nil {
		config, err := o.TLS.Config()
		if err != nil {
			return nil, err
		}
		to.TLS = config
	}
	s.client = northbound.New(to)
	return s, nil
}

// run works until ctx ends.
func (s *supplement) run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.begun:
		s.client.Run(ctx)
	}
}

// ofNeutron begins the names of switches and routers that ML2/OVN makes; it names ports by their
// UUIDs alone.
const ofNeutron = "neutron-"

// found takes a resource that Neutron has.
func (s *supplement) found(of resource.Resource, a resource.Actual) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref := of.Ref
	kind, name, _ := strings.Cut(ref.Key, "/")
	names, made := s.others.Switches, ofNeutron+a.ID
	switch {
	case ref.Kind == resource.Router:
		names = s.others.Routers
	// Ports of a node's addresses have these behind its name.
	case ref.Kind == resource.Port && kind == "Node" && !strings.Contains(name, " "):
		names, made = s.others.NodePorts, a.ID
	case ref.Kind == resource.FloatingIP:
		if f, _ := s.Intent.Intent().State().FloatingIPs().Get(name); f.Service == "" {
			return
		}
		made, _ = a.Attributes["floating_ip_address"].(string)
		names = s.others.FloatingIPs
	case ref.Kind != resource.Network:
		return
	case kind != "Network": // of another program: on external ones there are ports for FloatingIPs
		name, _ = strings.CutPrefix(of.Object, "Network ")
		if n, _ := s.Intent.Intent().State().Networks().Get(name); !n.External || n.Physical == "" {
			return
		}
	}
	if names[name] != made {
		names[name] = made
		s.client.Changed()
	}
}

// only forgets FloatingIPs that Neutron does not have any more: another project may have got their
// addresses.
func (s *supplement) only(have *resource.Inventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.others.FloatingIPs)
	maps.DeleteFunc(s.others.FloatingIPs, func(name, _ string) bool {
		_, there := have.Get(neutroncompile.FloatingIPRef(name))
		return !there
	})
	if len(s.others.FloatingIPs) < before {
		s.client.Changed()
	}
}

// want are the rows of the newest intent. What Neutron has made of objects that are gone is
// forgotten: of those that come back it makes others.
func (s *supplement) want() *nb.Rows {
	s.mu.Lock()
	state := s.Intent.Intent().State()
	maps.DeleteFunc(s.others.Switches, func(name, _ string) bool { _, ok := state.Networks().Get(name); return !ok })
	maps.DeleteFunc(s.others.Routers, func(name, _ string) bool { _, ok := state.Routers().Get(name); return !ok })
	maps.DeleteFunc(s.others.NodePorts, func(name, _ string) bool { _, ok := state.Nodes().Get(name); return !ok })
	maps.DeleteFunc(s.others.FloatingIPs, func(name, _ string) bool {
		_, ok := state.FloatingIPs().Get(name)
		return !ok
	})
	others := compile.Others{
		Switches: maps.Clone(s.others.Switches), Routers: maps.Clone(s.others.Routers),
		NodePorts: maps.Clone(s.others.NodePorts), FloatingIPs: maps.Clone(s.others.FloatingIPs),
	}
	s.mu.Unlock()
	s.rows.Update(state, others)
	return s.rows.Rows()
}

// compared takes what came of a comparison.
func (s *supplement) compared(err error) {
	var list []findings.Finding
	for _, p := range s.rows.Rows().Problems() {
		list = append(list, findings.Finding(p))
	}
	s.report(outcome{list, err})
}
