// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"coelan.io/coelan/internal/intent"
)

// ServiceView is what a Service's intent depends on besides Kubernetes' Services and EndpointSlices. The zero value is nobody's
// view: of a node without name and zone, with all namespaces in the Router default.
type ServiceView struct {
	Node string // the name of this node
	Zone string // the value of its label topology.kubernetes.io/zone, "" if it has none
	// Router is the name of the Router of a namespace's Network, "" if it is not known yet: Services of the namespace are then
	// left out.
	Router func(namespace string) string
	// NodePortTaken says that a process of the host itself listens on a port.
	NodePortTaken func(p intent.Protocol, port uint16) bool
}

// Service translates one Service and its EndpointSlices: slices of other Services are skipped. It is false for what is not
// balanced: headless and ExternalName, or left to another proxy. What other Services have is not looked at; see ServiceSet.
func Service(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice, view ServiceView) (intent.Service, bool, []Problem) {
	e := &serviceEntry{key: serviceKey(svc.Namespace, svc.Name), record: readService(svc)}
	for _, o := range endpointSlices {
		if s := readSlice(o); s != nil && s.service == e.key {
			e.setSlice(s)
		}
	}
	claims := serviceClaims{}
	claims.add(e, func(*serviceEntry) {})
	t := serviceTranslator{view: view, claims: claims}
	v, ok := t.service(e)
	problems := make([]Problem, len(t.problems))
	for i, p := range t.problems {
		problems[i] = p.Problem
	}
	return v, ok, slices.Clip(problems)
}

// serviceTranslator makes intent of one entry at a time, in the light of what is claimed.
type serviceTranslator struct {
	view     ServiceView
	claims   serviceClaims
	chooser  chooser
	problems []ServiceProblem // of the last entry, sorted
}

// service is false for what is not balanced here.
func (t *serviceTranslator) service(e *serviceEntry) (intent.Service, bool) {
	t.problems = t.problems[:0]
	v, ok := t.translate(e)
	slices.SortFunc(t.problems, compareServiceProblems)
	return v, ok
}

func (t *serviceTranslator) translate(e *serviceEntry) (intent.Service, bool) {
	r := e.record
	if r == nil {
		return intent.Service{}, false
	}
	for _, p := range r.problems {
		t.report(e, p, false)
	}
	if !r.balanced() {
		return intent.Service{}, false
	}
	for _, s := range e.slices {
		if !r.clusterIPs[s.family].IsValid() {
			if p, wrong := s.otherFamily(r.namespace); wrong {
				t.report(e, p, false)
			}
			continue
		}
		for _, p := range s.problems {
			t.report(e, p, false)
		}
	}
	v := intent.Service{
		Namespace: r.namespace, Name: r.name, UID: r.uid, Router: intent.DefaultRouterName,
		AffinitySeconds: r.affinitySeconds, SourceRanges: slices.Clone(r.sourceRanges),
		InternalLocal: r.internalLocal, ExternalLocal: r.externalLocal, HealthCheckNodePort: r.healthCheckNodePort,
		LocalEndpoints: localReady(e.slices, r.clusterIPs, t.view.Node),
		Ports:          t.ports(e),
	}
	if t.view.Router != nil {
		v.Router = t.view.Router(r.namespace)
	}
	balancers := slices.ContainsFunc(v.Ports, func(p intent.ServicePort) bool { return len(p.LoadBalancerIPs) > 0 })
	if v.ExternalLocal && balancers {
		v.EndpointNodes = endpointNodes(e.slices, r.clusterIPs)
	}
	if v.Router == "" { // its problems are problems nevertheless
		return intent.Service{}, false
	}
	return v, true
}

// ports are those of all families that have an address left, sorted by family, port and protocol.
func (t *serviceTranslator) ports(e *serviceEntry) []intent.ServicePort {
	r := e.record
	ports := make([]intent.ServicePort, 0, int(families)*len(r.ports))
	nodePorts := make([]uint16, len(r.ports))
	for i := range r.ports {
		nodePorts[i] = t.nodePort(e, i)
	}
	for f, clusterIP := range r.clusterIPs {
		if !clusterIP.IsValid() {
			continue
		}
		for i, p := range r.ports {
			v := intent.ServicePort{
				Name: p.name, Protocol: p.protocol, IPv6: family(f) == ipv6, Port: p.port, NodePort: nodePorts[i],
				LoadBalancerIPs: t.addresses(e, i, balancerClaim, family(f)),
				ExternalIPs:     t.addresses(e, i, externalClaim, family(f)),
			}
			field := "spec.clusterIP"
			if t.has(e, claimed{clusterIP, p.protocol, p.port}, claimant{e, clusterIPClaim, int32(i)}, field) {
				v.ClusterIP = clusterIP
			}
			if v.ClusterIP.IsValid() || v.NodePort != 0 || len(v.LoadBalancerIPs)+len(v.ExternalIPs) > 0 {
				r.choose(&v, t.chooser.candidates(e.slices, family(f), p, &t.view))
				ports = append(ports, v)
			}
		}
	}
	slices.SortFunc(ports, func(a, b intent.ServicePort) int {
		return cmp.Or(-yesFirst(a.IPv6, b.IPv6), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return ports
}

// has says whether a claim holds, and reports it if not.
func (t *serviceTranslator) has(e *serviceEntry, what claimed, by claimant, field string) bool {
	holder, ok := t.claims.has(what, by)
	if !ok {
		p := Problem{Object: "service " + e.key, Field: field, Reason: Overlap, Text: by.lost(what, holder)}
		p.Value = fmt.Sprint(what.port)
		if what.ip.IsValid() {
			p.Value = what.ip.String()
		}
		t.report(e, p, false)
	}
	return ok
}

// nodePort is that of a port in all families, 0 if it has none or may not have it.
func (t *serviceTranslator) nodePort(e *serviceEntry, i int) uint16 {
	p := e.record.ports[i]
	if p.nodePort == 0 {
		return 0
	}
	field := fmt.Sprintf("spec.ports[%d].nodePort", i)
	what := claimed{protocol: p.protocol, port: p.nodePort}
	if !t.has(e, what, claimant{e, nodePortClaim, int32(i)}, field) {
		return 0
	}
	if t.view.NodePortTaken != nil && t.view.NodePortTaken(p.protocol, p.nodePort) {
		t.report(e, Problem{
			Object: "service " + e.key, Field: field, Value: fmt.Sprint(p.nodePort), Reason: InUse,
			Text: fmt.Sprintf("is a %s port that a process of node %s listens on, and so leads to that process there; end it, or choose another port",
				p.protocol, t.view.Node),
		}, true)
		return 0
	}
	return p.nodePort
}

// addresses are those of one family of a list that the port of that index has.
func (t *serviceTranslator) addresses(e *serviceEntry, i int, field claimField, f family) (list []netip.Addr) {
	from, name := e.record.balancerIPs, balancerIPsField
	if field == externalClaim {
		from, name = e.record.externalIPs, externalIPsField
	}
	p := e.record.ports[i]
	for _, a := range from {
		if familyOf(a.ip) == f && t.has(e, claimed{a.ip, p.protocol, p.port}, claimant{e, field, int32(i)}, fmt.Sprintf(name, a.index)) {
			list = append(list, a.ip)
		}
	}
	return list
}

func (t *serviceTranslator) report(e *serviceEntry, p Problem, local bool) {
	t.problems = append(t.problems, ServiceProblem{Service: e.name(), UID: e.record.uid, Local: local, Problem: p})
}
