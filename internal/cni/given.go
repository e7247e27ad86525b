// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

// errAddresses says that the addresses of an ADD come from an IPAM plugin that the caller has not
// called yet. Calling it first would be wrong for what is attached already: an IPAM plugin may
// refuse to give the same container another address.
var errAddresses = errors.New("the IPAM plugin of the network configuration has to be called first: is coelan-cni older than the agent?")

// given is the result of an IPAM plugin: CNI specification, section 4.
type given struct {
	plugin   string
	prefixes []netip.Prefix // the addresses, each with its length
	// hops are the gateways that the addresses and the default routes come with.
	hops []netip.Addr
	// gateways has one for each address; an invalid one if the address came without.
	gateways []netip.Addr
	// default4 and default6 say that there is a default route; routes are the others.
	default4, default6 bool
	routes             []attachment.Route
	dns                *types.DNS
}

// readGiven makes what an IPAM plugin gave what the call asks for.
func (c *call) readGiven(text []byte) error {
	if !c.conf.IPAM.Delegated() || text == nil {
		return nil
	}
	g := given{plugin: c.conf.IPAM.Type}
	if err := g.read(text, c.conf.CNIVersion); err != nil {
		return newError(wire.CodeDecoding, "result of the IPAM plugin "+g.plugin, err.Error())
	}
	for _, asked := range c.Addresses {
		if !slices.Contains(g.addresses(), asked) {
			return g.refused(v1alpha1.ReasonInvalid, "it gave %v, and the address %s is asked for", g.addresses(),
				asked)
		}
	}
	c.given, c.Addresses = &g, g.addresses()
	return nil
}

func (g *given) refused(reason, format string, args ...any) error {
	return &PlanError{Reason: reason, Message: "IPAM plugin " + g.plugin + ": " + fmt.Sprintf(format, args...)}
}

// read reads a result in the version that it names, or else that of the configuration.
func (g *given) read(text []byte, version string) error {
	var parts map[string]any
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if nullElement(parts) { // conversions of versions do not expect it
		return errors.New("a list has an element that is null")
	}
	switch named, _ := parts["cniVersion"].(string); {
	case named != "":
		version = named
	case parts == nil:
		return errors.New("it is null")
	default:
		parts["cniVersion"] = version
		var err error
		if text, err = json.Marshal(parts); err != nil {
			return err
		}
	}
	decoded, err := create.Create(version, text)
	if err != nil {
		return err
	}
	result, err := types100.NewResultFromResult(decoded)
	if err != nil {
		return err
	}
	if len(result.IPs) == 0 {
		return errors.New("it has no address")
	}
	for _, ip := range result.IPs {
		p, err := prefixOf(ip.Address)
		if err != nil {
			return fmt.Errorf("address: %w", err)
		}
		hop, ok := netip.AddrFromSlice(ip.Gateway)
		hop = hop.Unmap()
		g.prefixes, g.gateways = append(g.prefixes, p), append(g.gateways, hop)
		if ok && !slices.ContainsFunc(g.hops, sameFamily(hop)) {
			g.hops = append(g.hops, hop)
		}
	}
	if !result.DNS.IsEmpty() {
		g.dns = &result.DNS
	}
	return g.readRoutes(result.Routes)
}

// nullElement says whether a list in a value of JSON has an element that is null.
func nullElement(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if nullElement(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return element == nil || nullElement(element) })
	}
	return false
}

func (g *given) readRoutes(routes []*types.Route) error {
	for _, r := range routes {
		to, err := prefixOf(r.Dst)
		if err != nil {
			return fmt.Errorf("route: %w", err)
		}
		hop, _ := netip.AddrFromSlice(r.GW)
		hop = hop.Unmap()
		switch {
		case to.Bits() > 0:
			g.routes = append(g.routes, attachment.Route{Destination: to.Masked(), NextHop: hop})
			continue
		case to.Addr().Is4():
			g.default4 = true
		default:
			g.default6 = true
		}
		if hop.IsValid() {
			g.hops = append(slices.DeleteFunc(g.hops, sameFamily(hop)), hop)
		}
	}
	return nil
}

// hasDefault says whether there is a default route of a family.
func (g *given) hasDefault(is4 bool) bool { return is4 && g.default4 || !is4 && g.default6 }

func sameFamily(as netip.Addr) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return a.Is4() == as.Is4() }
}

func prefixOf(n net.IPNet) (netip.Prefix, error) {
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, fmt.Errorf("%s is not a prefix", n.String())
	}
	if addr = addr.Unmap(); bits != addr.BitLen() {
		ones -= bits - addr.BitLen() // an IPv4 address with an IPv6 mask
	}
	if p := netip.PrefixFrom(addr, ones); p.IsValid() {
		return p, nil
	}
	return netip.Prefix{}, fmt.Errorf("%s is not a prefix", n.String())
}

func (g *given) addresses() []netip.Addr {
	list := make([]netip.Addr, len(g.prefixes))
	for i, p := range g.prefixes {
		list[i] = p.Addr()
	}
	return list
}

// matches returns an error if an attachment has other addresses than were given; nil: none were.
func (g *given) matches(a attachment.Attachment) error {
	if g == nil {
		return nil
	}
	for _, p := range a.Addresses {
		if !slices.Contains(g.addresses(), p.Addr()) {
			return g.refused(v1alpha1.ReasonInvalid, "it gave %v, and %s has %v already", g.addresses(), a.PodRef(),
				a.Addresses)
		}
	}
	return nil
}

// applyConfig adds to the plan of the call's own interface what the configuration says of its
// bridge and of routes, and what an IPAM plugin gave.
func (s *Server) applyConfig(i planned, c call) error {
	i.DefaultRoute = i.DefaultRoute || c.conf.DefaultGateway
	i.Bridge = c.conf.Beside
	g := c.given
	if g == nil {
		return nil
	}
	if !slices.Equal(i.Addresses, g.addresses()) {
		return i.refused(v1alpha1.ReasonInvalid, "the pod asks for %v, and the IPAM plugin %s gave %v", i.Addresses,
			g.plugin, g.addresses())
	}
	i.DefaultRoute = i.DefaultRoute || g.default4 || g.default6
	i.Routes = append(slices.Clone(i.Routes), g.routes...)
	if i.DNS == nil {
		i.DNS = g.dns
	}
	for _, hop := range g.hops {
		if !slices.ContainsFunc(i.Subnets, func(n intent.NetworkSubnet) bool { return n.Gateway == hop }) {
			i.Gateways = append(slices.DeleteFunc(slices.Clone(i.Gateways), sameFamily(hop)), hop)
		}
	}
	for _, p := range g.prefixes {
		if n, ok := i.Subnet(p.Addr()); ok && n.Prefix != p.Masked() {
			s.warn([]string{fmt.Sprintf("ipam: the length of %s is ignored: the subnet of Network %s is %s", p.Masked(),
				i.NetworkName, n.Prefix)})
		}
	}
	return nil
}
