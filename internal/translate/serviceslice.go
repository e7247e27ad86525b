// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unique"

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
	// written is by somebody, and not by Kubernetes, which sees to the families itself.
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
	place unique.Handle[place]
	ready bool // else it is terminating, but still serves
}

// place is where an endpoint is and whom it is meant for. Many endpoints share one.
type place struct {
	node               string
	forZones, forNodes string // the names in the hints, separated by commas; "" if there are none
}

// has says whether a list of names separated by commas has one.
func has(list, name string) bool {
	for len(list) > 0 && name != "" {
		head, rest, _ := strings.Cut(list, ",")
		if head == name {
			return true
		}
		list = rest
	}
	return false
}

// sliceController is who makes the slices of Services with a selector.
const sliceController = "endpointslice-controller.k8s.io"

// otherFamily is what is wrong with a slice for a Service that has no address of its family; false if nobody wrote it so.
func (s *sliceRecord) otherFamily(namespace string) (Problem, bool) {
	return Problem{
		Object: "endpointslice " + namespace + "/" + s.name, Field: "addressType", Value: s.family.String(), Reason: Malformed,
		Text: "is a family of which the Service has no address, so that nobody gets these endpoints; put it into spec.ipFamilies of the Service",
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
		read.protocol, known = protocolOf(*p.Protocol)
	}
	switch {
	case !known:
		problems.add(fmt.Sprintf("ports[%d].protocol", i), string(*p.Protocol), "is not TCP, UDP or SCTP")
	case p.Port == nil:
		problems.add(fmt.Sprintf("ports[%d].port", i), "", "a Service needs the number of the port; set it")
	case !isPort(*p.Port):
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
	s.all = append(s.all, sliceEndpoint{ip: ip, place: unique.Make(placeOf(e)), ready: ready})
}

func placeOf(e *discoveryv1.Endpoint) place {
	var p place
	if e.NodeName != nil {
		p.node = *e.NodeName
	}
	if e.Hints == nil {
		return p
	}
	p.forZones = joined(e.Hints.ForZones, func(z discoveryv1.ForZone) string { return z.Name })
	p.forNodes = joined(e.Hints.ForNodes, func(n discoveryv1.ForNode) string { return n.Name })
	return p
}

// joined is the names of a list with commas between them.
func joined[T any](list []T, name func(T) string) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return name(list[0]) // what nearly all have costs nothing
	}
	names := make([]string, len(list))
	for i, o := range list {
		names[i] = name(o)
	}
	return strings.Join(names, ",")
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
