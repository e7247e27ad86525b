// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/quarantine"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/policystream/wire"
)

// effectOf says what follows from leaving out an object of that kind.
func effectOf(ref intent.Ref) string {
	if _, ok := ref.Policy(); ok {
		return "its ports on this node are closed"
	}
	switch ref.Kind {
	case intent.KindPort:
		return "nothing passes from or to the port"
	case intent.KindService:
		return "this node does not lead to it"
	case intent.KindNetwork, intent.KindRouter:
		return "its ports on this node have no connection"
	case intent.KindNode, intent.KindBlock:
		return "its pods cannot be reached from this node"
	}
	return "it has no effect on this node"
}

func refusedOf(e quarantine.Entry) agentapi.Refused {
	return agentapi.Refused{
		Kind: string(e.Object.Kind), Name: e.Name, Error: e.Err, Rule: e.Rule, Since: e.Since.UTC(),
		Effect: effectOf(e.Object),
	}
}

// refusalReports tell users, controllers and the coelan command what the switch refuses.
type refusalReports struct {
	node       string
	intent     *intent.Store
	quarantine *quarantine.Quarantine
	events     backend.Events
	hooks      backend.Hooks
	count      *prometheus.CounterVec // by kind
}

// list is everything that is left out now.
func (r *refusalReports) list() []agentapi.Refused {
	list := []agentapi.Refused{}
	for _, e := range r.quarantine.List() {
		list = append(list, refusedOf(e))
	}
	return list
}

// added counts objects that the switch refuses, and emits Events about them.
func (r *refusalReports) added(list []quarantine.Entry) {
	state := r.intent.State()
	for _, e := range list {
		r.count.WithLabelValues(string(e.Object.Kind)).Inc()
		message := fmt.Sprintf("node %s: the switch refuses it: %s: %s: %s", r.node, e.Err,
			effectOf(e.Object), e.Rule)
		warn := func(version string, about intent.PolicyRef) {
			r.events.ObjectWarning(version, string(about.Kind), about.Namespace, about.Name, v1alpha1.ReasonRefused,
				message)
		}
		policy, isPolicy := e.Object.Policy()
		switch {
		case isPolicy:
			warn(policyVersions[policy.Kind], policy)
		case e.Object.Kind == intent.KindPort && e.Port.Interface == "":
			r.events.PortWarning(e.Port.Namespace, e.Port.Pod, e.Port.UID, v1alpha1.ReasonRefused, message)
		case e.Object.Kind == intent.KindPort:
			r.events.PodWarning(e.Port.Namespace, e.Port.Pod, e.Port.UID, v1alpha1.ReasonRefused, message)
		case e.Object.Kind == intent.KindService:
			v, _ := state.NodeServices().Get(e.Object.Key)
			r.events.ServiceWarning(v.Namespace, v.Name, v.UID, v1alpha1.ReasonRefused, message)
		case e.Object.Kind == intent.KindNode:
			warn("v1", intent.PolicyRef{Kind: "Node", Name: e.Name})
		case e.Object.Kind == intent.KindNetwork, e.Object.Kind == intent.KindRouter:
			warn(v1alpha1.GroupVersion.String(), intent.PolicyRef{Kind: intent.PolicyKind(e.Object.Kind), Name: e.Name})
		default: // their names here are not those of objects of the API
			r.hooks.Warn(v1alpha1.ReasonRefused, errors.New(refusedOf(e).String()))
		}
	}
}

// changed passes what the switch refuses to the controllers: they write the conditions of objects
// that agents may not write.
func (r *refusalReports) changed(list []quarantine.Entry) {
	r.hooks.Refused(refusalsOf(list))
}

// refusalsOf are the objects that have conditions which the controllers write.
func refusalsOf(list []quarantine.Entry) (refused []policy.Refusal) {
	for _, e := range list {
		ref, isPolicy := e.Object.Policy()
		if !isPolicy {
			ref = intent.PolicyRef{Kind: intent.PolicyKind(e.Object.Kind), Name: e.Name}
		}
		if wire.Refusable(ref.Kind) {
			refused = append(refused, policy.Refusal{Object: ref, Reason: e.Err})
		}
	}
	return refused
}

var policyVersions = map[intent.PolicyKind]string{
	intent.NetworkPolicy:        "networking.k8s.io/v1",
	intent.ClusterNetworkPolicy: policyapi.GroupVersion.String(),
	intent.SecurityGroup:        v1alpha1.GroupVersion.String(),
}

// onWay are the objects that a traced packet may miss: the Ports of its addresses and their
// Networks, and its Service.
func (r *refusalReports) onWay(request agentapi.TraceRequest) []agentapi.Refused {
	state, seen := r.intent.State(), map[intent.Ref]bool{}
	var list []agentapi.Refused
	add := func(e quarantine.Entry) {
		if !seen[e.Object] {
			seen[e.Object] = true
			list = append(list, refusedOf(e))
		}
	}
	for _, addr := range []netip.Addr{request.Source, request.Destination} {
		for p := range state.PortsWith(addr) {
			if e, ok := r.quarantine.Of(state, p); ok {
				add(e)
			}
		}
	}
	for _, e := range r.quarantine.List() {
		v, ok := state.NodeServices().Get(e.Object.Key)
		if ok && e.Object.Kind == intent.KindService && hasAddress(v, request.Destination) {
			add(e)
		}
	}
	return list
}

// hasAddress says whether a Service can be asked at an address that is not a node's.
func hasAddress(v intent.NodeService, addr netip.Addr) bool {
	return slices.ContainsFunc(v.Ports, func(p intent.NodeServicePort) bool {
		return p.ClusterIP == addr || slices.Contains(p.ExternalIPs, addr) ||
			slices.Contains(p.LoadBalancerIPs, addr)
	})
}

// refusedCollector shows how many objects of each kind are left out.
type refusedCollector struct{ quarantine *quarantine.Quarantine }

var refusedDesc = prometheus.NewDesc("coelan_refused_objects",
	"Objects that are left out because the switch refuses their flows.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (c *refusedCollector) Describe(ch chan<- *prometheus.Desc) { ch <- refusedDesc }

// Collect implements prometheus.Collector.
func (c *refusedCollector) Collect(ch chan<- prometheus.Metric) {
	count := map[intent.Kind]float64{
		intent.KindPort: 0, intent.KindService: 0, intent.KindNetwork: 0, intent.Kind(intent.NetworkPolicy): 0,
		intent.Kind(intent.ClusterNetworkPolicy): 0, intent.Kind(intent.SecurityGroup): 0,
	}
	for _, e := range c.quarantine.List() {
		count[e.Object.Kind]++
	}
	for kind, n := range count {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, n, string(kind))
	}
}
