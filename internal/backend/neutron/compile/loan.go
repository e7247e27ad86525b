// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"strconv"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// Loans are the Networks that name a network of another program.
type Loans map[string]Loan

// Loan is one of them.
type Loan struct {
	// Own says that the Network has a network of its own already, or can have no other one: its
	// ports are on that.
	Own bool
	// Problems are what is not as the Network says.
	Problems []resource.Problem
}

// Borrow looks what there is of the networks of other programs.
func Borrow(s *intent.State, have *resource.Inventory) Loans {
	loans := Loans{}
	for n := range s.Networks().All() {
		if n.NeutronNetwork != "" {
			loans[n.Name] = borrow(s, n, have)
		}
	}
	return loans
}

func borrow(s *intent.State, n intent.Network, have *resource.Inventory) Loan {
	var l Loan
	say := func(reason, message string, args ...any) {
		l.Problems = append(l.Problems, resource.Problem{
			Object: NetworkObject(n.Name), Reason: reason, Message: fmt.Sprintf(message, args...),
		})
	}
	_, own := have.Get(NetworkRef(n.Name).In(have.Named(n.Project)))
	_, ofCluster := have.Get(NetworkRef(n.Name))
	switch {
	case n.FromNodes():
		say("NeutronNetworkIgnored", "a Network with addresses of the nodes' ranges is on that of the Network default: give it "+
			"spec.subnets to have it on the network %q", n.NeutronNetwork)
		return Loan{true, l.Problems}
	case own || ofCluster:
		say("NetworkKept", "it has a network of its own in Neutron, and its ports stay there: make the Network anew to have it on the "+
			"network %q", n.NeutronNetwork)
		return Loan{true, l.Problems}
	}
	loan, known := have.Loan(resource.LentNetwork(NetworkObject(n.Name)))
	if !known {
		return l // the next reading says
	}
	if loan.Refused != "" {
		say("NetworkNotFound", "%s", loan.Refused)
		return l
	}
	for _, sn := range n.Subnets {
		if subnet, _ := have.Loan(lentSubnet(n, sn.Prefix)); subnet.ID == "" {
			say("SubnetNotFound", "the network %s of Neutron has no subnet %s: spec.subnets are to be subnets that it has",
				loan.ID, sn.Prefix)
		}
	}
	// JSON's numbers have several types here.
	if mtu, err := strconv.Atoi(fmt.Sprint(loan.Attributes["mtu"])); err == nil && n.MTU > mtu {
		say("MTUTooLarge", "the network %s of Neutron takes packets of %d bytes, and spec.mtu is %d", loan.ID, mtu, n.MTU)
	}
	if external, _ := loan.Attributes["router:external"].(bool); n.External && !external {
		say("NotExternal", "the network %s of Neutron is not external: floating IPs and gateways have no addresses of it", loan.ID)
	}
	if r, ok := s.Routers().Get(n.Router); ok && n.Physical == "" && !r.Private() {
		say("RouterUnsupported", "a network that is not Coelan's is connected by its own router, and not by Coelan's Router %s: leave "+
			"spec.router out", r.Name)
	}
	return l
}

// lent reports whether a Network is on a network of another program.
func (o Options) lent(n intent.Network) bool { return n.NeutronNetwork != "" && !o.Loans[n.Name].Own }

func lentSubnet(n intent.Network, prefix netip.Prefix) resource.Ref {
	return resource.LentSubnet(NetworkObject(n.Name), prefix)
}

// lend has ports be on the network of another program.
func (c *compiler) lend(n intent.Network) {
	object := NetworkObject(n.Name)
	refs := []resource.Ref{c.networkRef(n)}
	for _, sn := range n.Subnets {
		refs = append(refs, c.subnetRef(n, sn.Prefix))
	}
	for _, r := range refs { // nothing is asked of them, and none is made
		c.set.Add(resource.Resource{Ref: r, Object: object, Optional: true})
	}
}

// idle reports whether a Router's Networks are all on networks of other programs, which have
// routers of their own.
func (c *compiler) idle(r intent.Router) bool {
	lent := false
	for n := range c.state.Networks().All() {
		if n.Router == r.Name && n.Physical == "" {
			if !c.lent(n) {
				return false
			}
			lent = true
		}
	}
	return lent
}
