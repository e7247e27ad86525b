// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/attachment"
)

// The default network's name in requests of OVN4NFV; "default" is Coelan's.
const ovn4nfvDefault = "ovn4nfvk8s-default-nw"

// parseNFN reads AnnotationNFNNetwork:
//
//	{"type":"ovn4nfv","interface":[{"name":"NETWORK","interface":"net0","defaultGateway":"false",
//	  "ipAddress":"172.16.44.9","macAddress":"0a:00:00:00:00:01","gwipaddress":"172.16.44.201"}]}
//
// Keys are not case-sensitive, booleans are strings. Of several interfaces with defaultGateway the
// first has it.
func parseNFN(text string) ([]Request, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	whole := &element{annotation: AnnotationNFNNetwork, read: map[string]bool{}}
	if err := json.Unmarshal([]byte(text), &whole.fields); err != nil || whole.fields == nil {
		return nil, &Error{Annotation: AnnotationNFNNetwork, Value: quote(text), Problem: jsonProblem(err)}
	}
	whole.fold()
	if kind := whole.text("type"); kind != "" && !strings.EqualFold(kind, "ovn4nfv") &&
		!strings.EqualFold(kind, "coelan") {
		whole.fail("type", quote(kind), "is neither ovn4nfv nor coelan")
	}
	interfaces := whole.raw("interface")
	if interfaces == nil {
		whole.fail("interface", quote(text), "is missing")
	}
	if whole.err != nil {
		return nil, whole.err
	}
	all, err := elements(AnnotationNFNNetwork, interfaces)
	if err != nil {
		return nil, err
	}
	var list []Request
	var routed bool
	for _, e := range all {
		r, err := e.nfn()
		if err != nil {
			return nil, err
		}
		if r.DefaultRoute && routed {
			r.DefaultRoute = false
			r.Ignored = append(r.Ignored, "defaultgateway")
		}
		routed = routed || r.DefaultRoute
		list = append(list, r)
	}
	return list, nil
}

// nfn reads one interface.
func (e *element) nfn() (Request, error) {
	e.fold()
	r := Request{Annotation: AnnotationNFNNetwork, Position: e.position, Network: e.text("name"),
		Interface: e.interfaceName("interface"),
		Requested: attachment.Requested{MAC: e.mac("macaddress"), DefaultRoute: e.truth("defaultgateway")}}
	r.Addresses, _ = e.addresses("ipaddress", true)
	r.Gateways, _ = e.addresses("gwipaddress", true)
	e.onePerFamily("gwipaddress", r.Gateways)
	switch {
	case r.Network == "":
		e.fail("name", quote(""), "is missing")
	case strings.EqualFold(r.Network, ovn4nfvDefault) || strings.EqualFold(r.Network, "default"):
		// The default network stands for the pod's first interface, which is * in the answer.
		if r.Interface != "" && r.Interface != "*" {
			r.Ignored = append(r.Ignored, "interface")
		}
		r.Network, r.Interface, r.Primary = "", "", true
	case r.Interface == "":
		e.fail("interface", quote(""), "is missing: only the default network's may be left out")
	default:
		e.checkName("name", r.Network)
	}
	for _, key := range slices.Sorted(maps.Keys(e.fields)) {
		if !e.read[key] {
			r.Ignored = append(r.Ignored, key)
		}
	}
	return r, e.err
}

// fold makes the keys lower case.
func (e *element) fold() {
	folded := make(map[string]json.RawMessage, len(e.fields))
	for _, key := range slices.Sorted(maps.Keys(e.fields)) {
		folded[strings.ToLower(key)] = e.fields[key]
	}
	e.fields = folded
}

// onePerFamily fails if there are several addresses of one family.
func (e *element) onePerFamily(field string, list []netip.Addr) {
	for i, a := range list {
		if slices.ContainsFunc(list[:i], func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			e.fail(fmt.Sprintf("%s[%d]", field, i), quote(a.String()), "is the second gateway of its family")
		}
	}
}
