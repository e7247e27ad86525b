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

// ServiceView is what a Service's intent depends on besides Kubernetes' Services and
// EndpointSlices. The zero value has all namespaces in the Router default.
type ServiceView struct {
	Node string // the name of this node, for messages
	// Router is the name of the Router of a namespace's Network, "" if it is not known yet:
	// Services of the namespace are then left out.
	Router func(namespace string) string
	// NodePortTaken says that a process of the host itself listens on a port, which is a problem of
	// this node only.
	NodePortTaken func(p intent.Protocol, port uint16) bool
	// ExternalIPRefused says why Services of a namespace must not have an external IP,
	// "" if they may.
	ExternalIPRefused func(namespace string, ip netip.Addr) string
}

// Service translates one Service and its EndpointSlices: slices of other Services are skipped. It
// is false for what is not balanced: headless and ExternalName, or left to another proxy. What
// other Services have is not looked at; see ServiceSet.
func Service(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice,
	view ServiceView,
) (intent.Service, bool, []Problem) {
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
		Octavia: r.octavia, Ports: t.ports(e),
	}
	if t.view.Router != nil {
		v.Router = t.view.Router(r.namespace)
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
				v.Endpoints = endpoints(e.slices, family(f), p)
				ports = append(ports, v)
			}
		}
	}
	slices.SortFunc(ports, func(a, b intent.ServicePort) int {
		return cmp.Or(-TrueFirst(a.IPv6, b.IPv6), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return ports
}

// has says whether a claim holds, and reports it if not.
func (t *serviceTranslator) has(e *serviceEntry, what claimed, by claimant, field string) bool {
	holder, ok := t.claims.has(what, by, t.refused)
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

// nodePort is that of a port in all families, 0 if it has none or may not have it. One that a
// process of the host has is the Service's on all other nodes.
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
		if familyOf(a.ip) != f {
			continue
		}
		by, at := claimant{e, field, int32(i)}, fmt.Sprintf(name, a.index)
		if why := t.refused(by, a.ip); why != "" {
			t.reportOnce(e, Problem{Object: "service " + e.key, Field: at, Value: a.ip.String(), Reason: NotAllowed,
				Text: why})
			continue
		}
		if t.has(e, claimed{a.ip, p.protocol, p.port}, by, at) {
			list = append(list, a.ip)
		}
	}
	return list
}

// refused says why a claim does not count, "" if it does.
func (t *serviceTranslator) refused(by claimant, ip netip.Addr) string {
	if by.field != externalClaim || t.view.ExternalIPRefused == nil {
		return ""
	}
	return t.view.ExternalIPRefused(by.of.record.namespace, ip)
}

// reportOnce is for what is the same for all ports.
func (t *serviceTranslator) reportOnce(e *serviceEntry, p Problem) {
	if !slices.ContainsFunc(t.problems, func(o ServiceProblem) bool { return o.Problem == p }) {
		t.report(e, p, false)
	}
}

func (t *serviceTranslator) report(e *serviceEntry, p Problem, local bool) {
	t.problems = append(t.problems, ServiceProblem{Service: e.name(), UID: e.record.uid, Local: local, Problem: p})
}

// TrueFirst compares two values so that true sorts before false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
