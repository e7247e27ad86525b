// SPDX-License-Identifier: Apache-2.0

package compile

import "coelan.io/coelan/internal/intent"

// feature is a part of the pipeline. Its functions may be nil; those that are
// not emit the flows that one object needs.
type feature struct {
	number uint8 // in cookies; never used for another feature
	name   string
	tables []Table
	// needed says whether the feature is there at all; nil: always.
	needed func(intent.Local) bool

	local   func(*rules) // what is always there
	router  func(*rules, intent.Router)
	network func(*rules, intent.Network)
	node    func(*rules, intent.Node)
	port    func(*rules, intent.Port) // ports of this node
}

// features is the pipeline, in the order of a packet's way.
var features []*feature

func init() {
	features = []*feature{
		classifyFeature,
		tunnelFeature,
		spoofguardFeature,
		neighbourFeature,
		l2Feature,
		l3Feature,
		ttlFeature,
		serviceReturnFeature,
		outputFeature,
	}
}

// tunnelled is for features that only tunnels need.
func tunnelled(l intent.Local) bool { return l.Encapsulation.Tunnelled() }

// compileLocal emits what is always there: the features' own flows and the drop
// at the end of each of their tables.
func (r *rules) compileLocal() {
	r.each(func(f *feature) {
		for _, t := range f.tables {
			if t.miss != "" {
				r.on(t, 0).drop(t.miss)
			}
		}
		if f.local != nil {
			f.local(r)
		}
	})
}

func (r *rules) compileRouter(o intent.Router) {
	r.each(func(f *feature) {
		if f.router != nil {
			f.router(r, o)
		}
	})
}

func (r *rules) compileNetwork(o intent.Network) {
	r.each(func(f *feature) {
		if f.network != nil {
			f.network(r, o)
		}
	})
}

func (r *rules) compileNode(o intent.Node) {
	r.each(func(f *feature) {
		if f.node != nil {
			f.node(r, o)
		}
	})
}

func (r *rules) compilePort(o intent.Port) {
	if o.Node != r.local.Node {
		return
	}
	r.each(func(f *feature) {
		if f.port != nil {
			f.port(r, o)
		}
	})
}

// each runs emit once for every feature that is needed.
func (r *rules) each(emit func(*feature)) {
	for _, f := range features {
		if f.needed == nil || f.needed(r.local) {
			r.begin(f)
			emit(f)
		}
	}
}
