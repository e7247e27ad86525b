// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

// Keys of CNI_ARGS by which a caller says which port an interface is to be, and what it expects of
// it: those of the Kuryr document, and its IPv4 keys once more for IPv6.
const (
	argPort     = "PORT_UUID"
	argPortType = "PORT_TYPE"
	argIPv4     = "IPV4"
	argIPv6     = "IPV6"
	argGateway4 = "GW"
	argGateway6 = "GW6"
)

// portKeys are all of them.
var portKeys = []string{argPort, argPortType, argIPv4, argIPv6, argGateway4, argGateway6}

// The types of port that Coelan makes: typeVLAN on nodes that are machines of OpenStack, typeOVS on
// all others.
const (
	typeOVS  = "ovs"
	typeVLAN = "vlan"
)

// notMade says of each other type why Coelan does not make it.
var notMade = map[string]string{
	"bridge":    "pods' interfaces are ports of Open vSwitch, without a Linux bridge in front",
	"vhostuser": "a container's process uses an interface of the kernel, and none of a virtual machine",
	"macvlan":   "ML2/OVN delivers nothing to a port that is an address pair of its node's as well",
}

// uuidText is how Neutron writes a UUID.
var uuidText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// expected is what the caller expects of the interface.
type expected struct {
	addresses []expectedAddress
	gateways  []expectedGateway
	portType  string // empty: any
}

type expectedAddress struct {
	key     string
	address netip.Addr
	bits    int // -1: any length
}

type expectedGateway struct {
	key     string
	gateway netip.Addr
}

// wrongArg is the error about a pair of CNI_ARGS.
func wrongArg(key, value, format string, args ...any) error {
	return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("%s %q in CNI_ARGS", key, value),
		fmt.Sprintf(format, args...))
}

// readPortArgs reads what CNI_ARGS say of the port, by key. The addresses are asked for as those of
// the key IP are.
func (c *call) readPortArgs(given map[string]string, args *addressArgs) error {
	if kind, ok := given[argPortType]; ok && kind != typeOVS && kind != typeVLAN {
		why, known := notMade[kind]
		if !known {
			why = "it is no type that Coelan knows"
		}
		return wrongArg(argPortType, kind, "%s: ask for %s, or on a machine of OpenStack for %s", why, typeOVS, typeVLAN)
	}
	c.expects.portType = given[argPortType]
	if id, ok := given[argPort]; ok {
		if !uuidText.MatchString(id) {
			return wrongArg(argPort, id, "is not a UUID as Neutron writes it, such as a28c7404-7495-4557-b7fc-3e293508dbc6; "+
				"a semicolon is between pairs")
		}
		c.NeutronPort = id
	}
	for _, key := range []string{argIPv4, argIPv6} {
		text, ok := given[key]
		if !ok {
			continue
		}
		a := expectedAddress{key: key, bits: -1}
		var err error
		if p, prefixErr := netip.ParsePrefix(text); prefixErr == nil {
			a.address, a.bits = p.Addr(), p.Bits()
		} else {
			a.address, err = parseIP(text)
		}
		if err != nil || a.address.Is4() != (key == argIPv4) || a.address.Is4In6() {
			return wrongArg(key, text, "is not one address of the family, with its length or without")
		}
		if len(args.IPs) > 0 && len(c.expects.addresses) == 0 {
			return wrongArg(key, text, "IP gives addresses as well: give them by one of the two")
		}
		c.expects.addresses = append(c.expects.addresses, a)
		args.IPs = append(args.IPs, a.address.String())
	}
	for _, key := range []string{argGateway4, argGateway6} {
		text, ok := given[key]
		if !ok {
			continue
		}
		gateway, err := netip.ParseAddr(text)
		if err != nil || gateway.Zone() != "" || gateway.Is4() != (key == argGateway4) || gateway.Is4In6() {
			return wrongArg(key, text, "is not one address of the family")
		}
		c.expects.gateways = append(c.expects.gateways, expectedGateway{key, gateway})
	}
	return nil
}

// fits returns an error if ports of a node are not of the type that is asked for.
func (e expected) fits(node Node) error {
	switch {
	case e.portType == typeVLAN && !node.Trunk:
		return wrongArg(argPortType, e.portType, "the node is no machine of OpenStack with a trunk (annotation %s): ask for %s",
			v1alpha1.AnnotationTrunkPort, typeOVS)
	case e.portType == typeOVS && node.Trunk:
		return wrongArg(argPortType, e.portType, "the node is a machine of OpenStack, and its ports are on its trunk: ask for %s", typeVLAN)
	}
	return nil
}

// has is what there is to compare with what is expected: addresses with the lengths of their
// subnets, and the gateways that the interface has, or would have, of each family.
type has struct {
	addresses []netip.Prefix
	gateways  []netip.Addr
}

// ofPlan is what an interface will have. Without addresses, which are about to be chosen, it may
// have the gateway of any of the subnets.
func ofPlan(p *attachment.Plan) has {
	var h has
	for _, a := range p.Addresses {
		n, ok := p.Subnet(a)
		if !ok {
			n = intent.NetworkSubnet{Prefix: netip.PrefixFrom(a, a.BitLen())}
		}
		h.addresses = append(h.addresses, netip.PrefixFrom(a, n.Prefix.Bits()))
		h.gateways = append(h.gateways, n.Gateway)
	}
	if len(p.Addresses) == 0 {
		for _, n := range p.Subnets {
			h.gateways = append(h.gateways, n.Gateway)
		}
	}
	return h.through(p.Gateways)
}

// ofAttachment is what an interface has.
func ofAttachment(a attachment.Attachment) has {
	return has{a.Addresses, slices.Clone(a.Gateways)}.through(a.DefaultRoutes)
}

// through replaces gateways by those of default routes.
func (h has) through(gateways []netip.Addr) has {
	for _, g := range gateways {
		h.gateways = append(slices.DeleteFunc(h.gateways, sameFamily(g)), g)
	}
	h.gateways = slices.DeleteFunc(h.gateways, func(g netip.Addr) bool { return !g.IsValid() })
	return h
}

// unmet says what of the interface is not as the caller expects; empty: all is.
func (e expected) unmet(h has) string {
	for _, want := range e.addresses {
		i := slices.IndexFunc(h.addresses, func(p netip.Prefix) bool { return p.Addr() == want.address })
		switch {
		case i < 0:
			return fmt.Sprintf("%s in CNI_ARGS is %s, and its addresses are %v", want.key, want.address, h.addresses)
		case want.bits >= 0 && want.bits != h.addresses[i].Bits():
			return fmt.Sprintf("%s in CNI_ARGS is %s/%d, and the subnet has the length %d", want.key, want.address, want.bits,
				h.addresses[i].Bits())
		}
	}
	for _, want := range e.gateways {
		same := sameFamily(want.gateway)
		other := func(g netip.Addr) bool { return same(g) && g != want.gateway }
		switch i := slices.IndexFunc(h.gateways, other); {
		case i >= 0:
			return fmt.Sprintf("%s in CNI_ARGS is %s, and a gateway of its subnets is %s", want.key, want.gateway, h.gateways[i])
		case !slices.ContainsFunc(h.gateways, same):
			return fmt.Sprintf("%s in CNI_ARGS is %s, and it has no gateway of the family", want.key, want.gateway)
		}
	}
	return ""
}

// met returns an error if an interface that is there already is not the one that is asked for.
func (c call) met(a attachment.Attachment) error {
	if a.NeutronPort != c.NeutronPort {
		return wrongArg(argPort, c.NeutronPort, "the pod has its interface %s by the port %q already", a.IfName, a.NeutronPort)
	}
	if why := c.expects.unmet(ofAttachment(a)); why != "" {
		return &PlanError{
			Reason:  v1alpha1.ReasonInvalid,
			Message: fmt.Sprintf("interface %s of %s is there already: %s", a.IfName, a.PodRef(), why),
		}
	}
	return nil
}
