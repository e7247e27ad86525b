// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	neutroncompile "coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/backend/ovn/northbound"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/intent"
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
		rows:   compile.NewSupplement(compile.Options{Cluster: o.Cluster}),
		others: compile.Others{Rows: map[intent.Ref]string{}},
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

// rowOf is the object that a resource of Neutron is for, and what rows beside those of ML2/OVN need
// of it: the name of its row, or the address of a floating IP. False: nothing.
func rowOf(of resource.Resource, a resource.Actual) (object intent.Ref, row string, ok bool) {
	kind, name, _ := strings.Cut(of.Object, " ")
	object = intent.Ref{Kind: intent.Kind(kind), Key: name}
	switch {
	case of.Kind == resource.Network, of.Kind == resource.Router:
		return object, ofNeutron + a.ID, true
	case of.Kind == resource.Port && object.Kind == intent.KindNode:
		return object, a.ID, true
	case of.Kind == resource.FloatingIP:
		row, ok = a.Attributes["floating_ip_address"].(string)
		return object, row, ok
	}
	return intent.Ref{}, "", false
}

// refers reports whether rows refer to those of an object: not to those of networks of other
// programs but external ones, which have ports for FloatingIPs of Services.
func refers(s *intent.State, object intent.Ref) (is bool) {
	switch object.Kind {
	case intent.KindNetwork:
		n, there := s.Networks().Get(object.Key)
		return there && (n.NeutronNetwork == "" || n.External && n.Physical != "")
	case intent.KindRouter:
		_, is = s.Routers().Get(object.Key)
	case intent.KindNode:
		_, is = s.Nodes().Get(object.Key)
	case intent.KindFloatingIP:
		f, _ := s.FloatingIPs().Get(object.Key)
		return f.Service != ""
	}
	return is
}

// found takes a resource that Neutron has.
func (s *supplement) found(of resource.Resource, a resource.Actual) {
	object, row, ok := rowOf(of, a)
	if !ok || !refers(s.Intent.Intent().State(), object) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others.Rows[object] != row {
		s.others.Rows[object] = row
		s.client.Changed()
	}
}

// only takes all that Neutron has. It forgets FloatingIPs that Neutron does not have any more:
// another project may have got their addresses.
func (s *supplement) only(have *resource.Inventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	foreign := map[string][]netip.Prefix{}
	for object := range s.others.Rows {
		if object.Kind == intent.KindRouter {
			if prefixes := have.Foreign(neutroncompile.RouterRef(object.Key)); len(prefixes) > 0 {
				foreign[object.Key] = prefixes
			}
		}
	}
	before := len(s.others.Rows)
	maps.DeleteFunc(s.others.Rows, func(object intent.Ref, _ string) bool {
		_, there := have.Get(neutroncompile.FloatingIPRef(object.Key))
		return object.Kind == intent.KindFloatingIP && !there
	})
	same := maps.EqualFunc(foreign, s.others.Foreign, slices.Equal)
	s.others.Foreign = foreign
	if len(s.others.Rows) < before || !same {
		s.client.Changed()
	}
}

// want are the rows of the newest intent. What Neutron has made of objects that are gone is
// forgotten: of those that come back it makes others.
func (s *supplement) want() *nb.Rows {
	s.mu.Lock()
	state := s.Intent.Intent().State()
	maps.DeleteFunc(s.others.Rows, func(object intent.Ref, _ string) bool { return !refers(state, object) })
	others := compile.Others{Rows: maps.Clone(s.others.Rows), Foreign: s.others.Foreign}
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
