// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/names"
)

// PortSet is all Ports that nodes have bound, of pods and of users, also those with addresses that
// say where they are, and those of users that no node has bound, if it is to have them. A Port that
// has an address or a MAC that does not belong to it is left out, as by FixedPorts. A change judges
// anew what it touches: the Ports with an address that a block or claim is about, those of a node
// with other subnets than before, those of a Network. What comes out depends only on what is in the
// set, not on the order in which it came. It is for one goroutine.
type PortSet struct {
	// own is the address in a subnet that the node uses itself beside the gateway, if there is one.
	own func(subnet netip.Prefix) (netip.Addr, bool)
	// unbound: it has users' Ports that no node has bound.
	unbound  bool
	networks map[string]*portNetwork
	nodes    map[string]intent.Node
	singles  map[string]*v1alpha1.AddressBlock // of one address, by name
	blocks   map[string]*portNetwork           // of each other AddressBlock, by its name
	ports    map[string]*portEntry             // by namespace/name
	onNode   map[string]map[*portEntry]struct{}
	claiming map[string]map[*portEntry]struct{} // by the name of the block of one of its addresses
	sameMAC  map[portMAC]map[*portEntry]struct{}
	touched  map[*portEntry]struct{}
	troubled map[*portEntry]struct{}
}

// portNetwork is what the Ports of a Network depend on.
type portNetwork struct {
	name    string
	network []intent.Network                  // one, or none
	claims  map[string]*v1alpha1.AddressBlock // of several addresses, by name
	blocks  map[netip.Prefix]intent.Block     // those in effect
	ports   map[*portEntry]struct{}
	holders *holders // nil: it has to be made anew
}

// portEntry is a Port, and what it was found to be.
type portEntry struct {
	key     string // namespace/name
	object  *v1alpha1.Port
	network *portNetwork
	port    intent.Port // as it says; without an ID if it is not to be in effect, or is malformed
	// malformed is what cannot be read of a Port that is to be in effect.
	malformed []Problem
	// valid says that all that the Port has belongs to it, but for its MAC, by which it is found in
	// sameMAC.
	valid bool
	mac   portMAC
	// result is the Port in effect, if there is one.
	result  []intent.Port
	problem []Problem
}

// NewPortSet makes an empty set; own may be nil. With unbound it has users' Ports, too, that no
// node has bound.
func NewPortSet(own func(subnet netip.Prefix) (netip.Addr, bool), unbound bool) *PortSet {
	return &PortSet{
		own: own, unbound: unbound, networks: map[string]*portNetwork{}, nodes: map[string]intent.Node{},
		singles: map[string]*v1alpha1.AddressBlock{}, blocks: map[string]*portNetwork{},
		ports: map[string]*portEntry{}, onNode: map[string]map[*portEntry]struct{}{},
		claiming: map[string]map[*portEntry]struct{}{}, sameMAC: map[portMAC]map[*portEntry]struct{}{},
		touched: map[*portEntry]struct{}{}, troubled: map[*portEntry]struct{}{},
	}
}

// SetPort adds or replaces the Port of a namespace/name; nil removes it.
func (s *PortSet) SetPort(key string, o *v1alpha1.Port) {
	e := s.ports[key]
	if e == nil {
		if o == nil {
			return
		}
		e = &portEntry{key: key}
		s.ports[key] = e
	}
	s.unlink(e)
	e.object, e.port, e.malformed = o, intent.Port{}, nil
	if o == nil {
		delete(s.ports, key)
	} else {
		s.link(e)
	}
	s.touched[e] = struct{}{}
}

// link reads a Port, and has it found by what it depends on.
func (s *PortSet) link(e *portEntry) {
	o := e.object
	e.network = s.network(o.Spec.Network)
	e.network.ports[e] = struct{}{}
	if o.Status.Node == "" && (!s.unbound || o.Spec.ByAgent() || o.Spec.NeutronPort != "") ||
		len(o.Status.Addresses) == 0 {
		return
	}
	p, problem, ok := readPort(o)
	if ok {
		p.NodeAddresses, problem, ok = readNodeAddresses(o)
	}
	add(s.onNode, o.Status.Node, e)
	if !ok {
		e.malformed = []Problem{problem}
		return
	}
	e.port = p
	for _, a := range p.Addresses {
		add(s.claiming, singleBlock(p.Network, a), e)
	}
}

func (s *PortSet) unlink(e *portEntry) {
	if e.object == nil {
		return
	}
	delete(e.network.ports, e)
	s.tidy(e.network)
	remove(s.onNode, e.object.Status.Node, e)
	for _, a := range e.port.Addresses {
		remove(s.claiming, singleBlock(e.port.Network, a), e)
	}
}

func singleBlock(network string, a netip.Addr) string {
	return names.BlockName(network, netip.PrefixFrom(a, a.BitLen()))
}

func readNodeAddresses(o *v1alpha1.Port) ([]netip.Addr, Problem, bool) {
	var list []netip.Addr
	for i, text := range o.Status.NodeAddresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() {
			return nil, Problem{
				Object: "port " + o.Namespace + "/" + o.Name, Reason: Malformed,
				Field: fmt.Sprintf("status.nodeAddresses[%d]", i), Value: text, Text: "is not an address",
			}, false
		}
		list = append(list, a)
	}
	return list, Problem{}, true
}

// SetBlock adds or replaces the AddressBlock of a name; nil removes it.
func (s *PortSet) SetBlock(name string, o *v1alpha1.AddressBlock) {
	if s.singles[name] != nil {
		delete(s.singles, name)
		maps.Copy(s.touched, s.claiming[name])
	}
	if n := s.blocks[name]; n != nil {
		s.touchBlock(n, n.claims[name])
		delete(n.claims, name)
		delete(s.blocks, name)
		s.tidy(n)
	}
	if o == nil {
		return
	}
	switch p, err := parsePrefix(o.Spec.CIDR); {
	case err != nil:
	case p.IsSingleIP():
		s.singles[name] = o
		maps.Copy(s.touched, s.claiming[name])
	default:
		n := s.network(o.Spec.Network)
		n.claims[name], s.blocks[name] = o, n
		s.touchBlock(n, o)
	}
}

func (s *PortSet) touchBlock(n *portNetwork, o *v1alpha1.AddressBlock) {
	if p, err := parsePrefix(o.Spec.CIDR); err == nil {
		s.touchPrefix(n, p)
	}
}

// touchPrefix touches the Ports of a Network that have an address of a prefix, of which another
// block may be in effect.
func (s *PortSet) touchPrefix(n *portNetwork, prefix netip.Prefix) {
	n.holders = nil
	for e := range n.ports {
		if slices.ContainsFunc(e.port.Addresses, prefix.Contains) {
			s.touched[e] = struct{}{}
		}
	}
}

// Follow takes the Networks and Blocks of a NetworkSet. Its Ports are ignored.
func (s *PortSet) Follow(c NetworkChanges) {
	for _, n := range c.Networks.Gone {
		s.setNetwork(n.Name, nil)
	}
	for _, n := range c.Networks.Set {
		s.setNetwork(n.Name, []intent.Network{n})
	}
	for _, b := range c.Blocks.Gone {
		n := s.network(b.Network)
		if _, there := n.blocks[b.Prefix]; there {
			delete(n.blocks, b.Prefix)
			s.touchPrefix(n, b.Prefix)
		}
		s.tidy(n)
	}
	for _, b := range c.Blocks.Set {
		n := s.network(b.Network)
		if old, there := n.blocks[b.Prefix]; !there || old != b {
			n.blocks[b.Prefix] = b
			s.touchPrefix(n, b.Prefix)
		}
	}
}

func (s *PortSet) setNetwork(name string, now []intent.Network) {
	n := s.network(name)
	defer s.tidy(n)
	subnets := func(a, b intent.Network) bool {
		return a.FromNodes() == b.FromNodes() && a.Leased == b.Leased && slices.Equal(a.Subnets, b.Subnets)
	}
	if same := slices.EqualFunc(n.network, now, subnets); same {
		return
	}
	n.network, n.holders = now, nil
	maps.Copy(s.touched, n.ports)
}

// FollowNodes takes the nodes of a NodeSet.
func (s *PortSet) FollowNodes(c Change[intent.Node]) {
	for _, n := range c.Gone {
		delete(s.nodes, n.Name)
		maps.Copy(s.touched, s.onNode[n.Name])
	}
	for _, n := range c.Set {
		if old := s.nodes[n.Name]; !slices.Equal(old.Subnets, n.Subnets) {
			maps.Copy(s.touched, s.onNode[n.Name])
		}
		s.nodes[n.Name] = n
	}
}

// Changes is how the Ports in effect differ from what they were at the last call, and whether
// Problems may differ, too. It costs as much as the Ports that were touched meanwhile.
func (s *PortSet) Changes() (c Change[intent.Port], problems bool) {
	rivals := map[*portEntry]struct{}{} // those that have, or had, the MAC of one that was touched
	for e := range s.touched {
		if e.valid {
			maps.Copy(rivals, s.sameMAC[e.mac])
			remove(s.sameMAC, e.mac, e)
		}
		s.judge(e)
		if e.valid {
			e.mac = portMAC{e.port.Network, e.port.MAC}
			add(s.sameMAC, e.mac, e)
			maps.Copy(rivals, s.sameMAC[e.mac])
		}
		rivals[e] = struct{}{}
	}
	clear(s.touched)
	for e := range rivals {
		before := e.result
		e.result = s.result(e)
		_, had := s.troubled[e]
		problems = problems || had || len(e.problem) > 0
		mark(s.troubled, e, len(e.problem) > 0)
		switch {
		case len(e.result) == 0:
			c.Gone = append(c.Gone, before...)
		case !reflect.DeepEqual(before, e.result):
			c.Set = append(c.Set, e.result...)
		}
	}
	return c, problems
}

// Problems are those of all Ports as of the last call of Changes.
func (s *PortSet) Problems() []Problem {
	var list []Problem
	for e := range s.troubled {
		list = append(list, e.problem...)
	}
	sortProblems(list)
	return list
}

// judge finds whether all that a Port has belongs to it.
func (s *PortSet) judge(e *portEntry) {
	e.valid, e.problem = false, nil
	if e.object == nil || len(e.network.network) == 0 || e.network.network[0].Leased {
		return // no AddressBlock has addresses that DHCP servers of a physical network give
	}
	if e.problem = e.malformed; e.port.ID == "" {
		return
	}
	problem, ok := s.holders(e.network).judge(e.object, e.port)
	if ok {
		problem, ok = s.nodeAddresses(e)
	}
	if e.valid = ok; !ok {
		e.problem = []Problem{problem}
	}
}

// nodeAddresses reports whether the addresses that stand for a Port on its node are of the node.
func (s *PortSet) nodeAddresses(e *portEntry) (Problem, bool) {
	for i, a := range e.port.NodeAddresses {
		if !s.ofNode(e.object, a) {
			return Problem{
				Object: "port " + e.key, Reason: NotOwned, Field: fmt.Sprintf("status.nodeAddresses[%d]", i),
				Value: a.String(), Text: notOfNode + e.port.Node,
			}, false
		}
	}
	return Problem{}, true
}

// ofNode reports whether a pod may have an address by the subnets of its node: an agent makes Ports
// of its own node only.
func (s *PortSet) ofNode(o *v1alpha1.Port, a netip.Addr) bool {
	if o.Spec.Pod == nil || o.Spec.Node != o.Status.Node {
		return false
	}
	for _, subnet := range s.nodes[o.Status.Node].Subnets {
		if !subnet.Prefix.Contains(a) {
			continue
		}
		if s.own != nil {
			if own, there := s.own(subnet.Prefix); there && own == a {
				return false
			}
		}
		reserved := func(r netipx.IPRange) bool { return r.Contains(a) }
		return !slices.ContainsFunc(ipam.Reserved(subnet.Prefix, subnet.Gateway), reserved)
	}
	return false
}

// result is the Port in effect. Of those with one MAC on a Network one has it.
func (s *PortSet) result(e *portEntry) []intent.Port {
	if !e.valid {
		return nil
	}
	var rivals []boundPort
	for r := range s.sameMAC[e.mac] {
		rivals = append(rivals, boundPort{r.object, r.port})
	}
	e.problem = nil
	if owner := macOwners(rivals)[e.mac]; owner != e.object {
		e.problem = []Problem{macTaken(e.object, owner)}
		return nil
	}
	return []intent.Port{e.port}
}

// holders says to which Ports the addresses of a Network belong.
func (s *PortSet) holders(n *portNetwork) *holders {
	if n.holders == nil {
		blocks := slices.SortedFunc(maps.Values(n.blocks), func(a, b intent.Block) int {
			return a.Prefix.Addr().Compare(b.Prefix.Addr())
		})
		n.holders = newHolders(inOrder(n.claims), n.network, blocks)
		n.holders.singles, n.holders.ofNode = s.singles, s.ofNode
	}
	return n.holders
}

func (s *PortSet) network(name string) *portNetwork {
	n := s.networks[name]
	if n == nil {
		n = &portNetwork{
			name: name, claims: map[string]*v1alpha1.AddressBlock{}, blocks: map[netip.Prefix]intent.Block{},
			ports: map[*portEntry]struct{}{},
		}
		s.networks[name] = n
	}
	return n
}

// tidy forgets a Network of which nothing is left.
func (s *PortSet) tidy(n *portNetwork) {
	if len(n.network)+len(n.claims)+len(n.blocks)+len(n.ports) == 0 {
		delete(s.networks, n.name)
	}
}
