// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"coelan.io/coelan/internal/intent"
)

// sliceRecord is what is kept of an EndpointSlice. It is never changed.
type sliceRecord struct {
	service  string // namespace/name
	name     string
	family   family
	ports    []slicePort
	all      []sliceEndpoint // sorted by address; only those that may get traffic now
	problems []Problem
	// written reports that the slice was written by a user, and not by Kubernetes, which handles
	// the families itself.
	written bool
}

type slicePort struct {
	name     string
	protocol intent.Protocol
	port     uint16
}

// sliceEndpoint is an endpoint that is ready, or at least still serves.
type sliceEndpoint struct {
	ip    netip.Addr
	place intent.Topology
	ready bool // else it is terminating, but still serves
}

// sliceController is the controller that makes the slices of Services with a selector.
const sliceController = "endpointslice-controller.k8s.io"

// otherFamily is what is wrong with a slice for a Service that has no address of its family; false
// if it was not written by a user.
func (s *sliceRecord) otherFamily(namespace string) (Problem, bool) {
	return Problem{
		Object: "endpointslice " + namespace + "/" + s.name, Field: "addressType", Value: s.family.String(),
		Reason: Malformed,
		Text:   "is a family of which the Service has no address, so that nobody gets these endpoints; put it into spec.ipFamilies of the Service",
	}, s.written && len(s.all) > 0
}

// readSlice keeps what is of use of an EndpointSlice; nil if nothing is.
func readSlice(o *discoveryv1.EndpointSlice) *sliceRecord {
	s := &sliceRecord{service: o.Namespace + "/" + o.Labels[discoveryv1.LabelServiceName], name: o.Name}
	switch {
	case o.Labels[discoveryv1.LabelServiceName] == "" || isNotOurs(o.Labels):
		return nil
	case o.AddressType == discoveryv1.AddressTypeIPv4:
		s.family = ipv4
	case o.AddressType == discoveryv1.AddressTypeIPv6:
		s.family = ipv6
	default:
		return nil // names, which are nothing that packets can be sent to
	}
	s.written = o.Labels[discoveryv1.LabelManagedBy] != sliceController
	problems := sliceProblems{object: "endpointslice " + o.Namespace + "/" + o.Name}
	for i, p := range o.Ports {
		s.readPort(i, p, &problems)
	}
	if len(s.ports) > 0 {
		s.all = make([]sliceEndpoint, 0, len(o.Endpoints))
		for i := range o.Endpoints {
			s.readEndpoint(i, &o.Endpoints[i], &problems)
		}
	}
	slices.SortStableFunc(s.all, func(a, b sliceEndpoint) int { return a.ip.Compare(b.ip) })
	s.problems = problems.list()
	return s
}

func (s *sliceRecord) readPort(i int, p discoveryv1.EndpointPort, problems *sliceProblems) {
	read := slicePort{protocol: intent.TCP}
	if p.Name != nil {
		read.name = *p.Name
	}
	known := true
	if p.Protocol != nil {
		read.protocol, known = ProtocolOf(*p.Protocol)
	}
	switch {
	case !known:
		problems.add(fmt.Sprintf("ports[%d].protocol", i), string(*p.Protocol), "is not TCP, UDP or SCTP")
	case p.Port == nil:
		problems.add(fmt.Sprintf("ports[%d].port", i), "", "a Service needs the number of the port; set it")
	case !IsPort(*p.Port):
		problems.add(fmt.Sprintf("ports[%d].port", i), fmt.Sprint(*p.Port), "is not a port: those are 1 to 65535")
	default:
		read.port = uint16(*p.Port)
		s.ports = append(s.ports, read)
	}
}

func (s *sliceRecord) readEndpoint(i int, e *discoveryv1.Endpoint, problems *sliceProblems) {
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	serving := e.Conditions.Serving == nil || *e.Conditions.Serving
	terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
	if len(e.Addresses) == 0 {
		problems.add(fmt.Sprintf("endpoints[%d].addresses", i), "", "an endpoint needs an address")
		return
	}
	// The others, if there are any, are addresses of the same.
	text := e.Addresses[0]
	ip, err := serviceAddress(text)
	switch {
	case err != nil:
		problems.add(fmt.Sprintf("endpoints[%d].addresses[0]", i), text, err.Error())
		return
	case familyOf(ip) != s.family:
		problems.add(fmt.Sprintf("endpoints[%d].addresses[0]", i), text,
			fmt.Sprintf("is not an %s address, as addressType says; put it into a slice of its own family", s.family))
		return
	}
	if !ready && !(serving && terminating) {
		return
	}
	s.all = append(s.all, sliceEndpoint{ip: ip, place: topologyOf(e), ready: ready})
}

func topologyOf(e *discoveryv1.Endpoint) intent.Topology {
	var node string
	if e.NodeName != nil {
		node = *e.NodeName
	}
	if e.Hints == nil {
		return intent.NewTopology(node, nil, nil)
	}
	var zones, nodes []string
	for _, z := range e.Hints.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range e.Hints.ForNodes {
		nodes = append(nodes, n.Name)
	}
	return intent.NewTopology(node, zones, nodes)
}

// port is the number of the port of a name and protocol, 0 if the slice has none.
func (s *sliceRecord) port(name string, protocol intent.Protocol) uint16 {
	for _, p := range s.ports {
		if p.name == name && p.protocol == protocol {
			return p.port
		}
	}
	return 0
}

// sliceProblems joins what is wrong in the same way with many endpoints of a slice.
type sliceProblems struct {
	object string
	found  []Problem
	more   []int
}

func (p *sliceProblems) add(field, value, text string) {
	for i, f := range p.found {
		if f.Text == text {
			p.more[i]++
			return
		}
	}
	p.found = append(p.found, Problem{Object: p.object, Field: field, Value: value, Reason: Malformed, Text: text})
	p.more = append(p.more, 0)
}

func (p *sliceProblems) list() []Problem {
	for i, n := range p.more {
		if n > 0 {
			p.found[i].Text += fmt.Sprintf(" (and %d more like it)", n)
		}
	}
	return p.found
}

func (s *sliceRecord) compareName(name string) int { return strings.Compare(s.name, name) }
