// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"maps"
	"slices"
)

// Claim says that a resource which another system has made is to be the cluster's.
type Claim struct {
	Kind Kind
	ID   string
	// By is what says so, for people.
	By string
	// Ref is what the resource becomes. Ports have none: one becomes the port that is wanted with
	// its MAC for its device, which may not be there yet.
	Ref         Ref
	MAC, Device string
	// Has are attributes by which the resource proves that it is what the other system has made:
	// each has one of the values.
	Has map[string][]any
	// Addresses are those that a port has; nil: any.
	Addresses []string
	// Refused says why it cannot be the cluster's; empty: it can.
	Refused string
}

// offer is what there is of a Claim.
type offer struct {
	Claim
	actual Actual
	there  bool
}

// Offer adds what there is of a Claim; false: nothing.
func (i *Inventory) Offer(c Claim, a Actual, there bool) {
	i.offers = append(i.offers, offer{c, a, there})
}

// unproven says why a resource is not what its Claim says; empty: it is.
func (o offer) unproven() string {
	if o.Refused != "" {
		return o.Refused
	}
	if !o.there {
		return "the project has none of this id that is not Coelan's already"
	}
	for _, name := range slices.Sorted(maps.Keys(o.Has)) {
		if value := o.actual.Attributes[name]; !slices.Contains(o.Has[name], value) {
			return fmt.Sprintf("%s is %v, and not %v", name, value, o.Has[name][0])
		}
	}
	if has := addressesOf(o.actual); o.Addresses != nil && !sameElements(has, o.Addresses) {
		return fmt.Sprintf("its addresses are %v, and not %v", has, o.Addresses)
	}
	return ""
}

func addressesOf(a Actual) []string {
	var addresses []string
	for _, ip := range list(a.Attributes["fixed_ips"]) {
		fixed, _ := ip.(map[string]any)
		address, _ := fixed["ip_address"].(string)
		addresses = append(addresses, address)
	}
	return addresses
}

func sameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// interfaceOf is the device and the MAC of a port.
type interfaceOf struct{ device, mac any }

// adopt finds resources that are wanted and not there among those of other systems. It returns why
// it cannot take those that claims are about.
func (p *planner) adopt() (problems []Problem) {
	if len(p.have.offers) == 0 {
		return nil
	}
	devices := map[interfaceOf]Resource{}
	for _, r := range p.want.All(Port) {
		devices[interfaceOf{r.Mutable["device_id"], r.Fixed["mac_address"]}] = r
	}
	for _, o := range p.have.offers {
		r, wanted := p.want.Get(o.Ref)
		if o.Kind == Port {
			r, wanted = devices[interfaceOf{o.Device, o.MAC}]
		}
		if !wanted {
			continue
		}
		if why := p.take(r, o); why != "" {
			problems = append(problems, Problem{r.Object, "NotAdopted",
				fmt.Sprintf("%s of Neutron that %s names (%q) is not adopted: %s", o.Kind, o.By, o.ID, why)})
		}
	}
	return problems
}

// take makes an offer a resource that is wanted, or says why it is not.
func (p *planner) take(r Resource, o offer) (why string) {
	a, there := p.have.Get(r.Ref)
	switch {
	case there && a.ID == o.ID:
		return ""
	case there:
		return fmt.Sprintf("there is already the %s %s", o.Kind, a.ID)
	}
	for other, taken := range p.adopted {
		if taken.ID == o.ID {
			return "it is to be " + other.String()
		}
	}
	if why := o.unproven(); why != "" {
		return why
	}
	if names := slices.Sorted(maps.Keys(p.differing(r.Fixed, o.actual))); len(names) > 0 {
		return fmt.Sprintf("its %s %v is not what the object asks for", names[0], o.actual.Attributes[names[0]])
	}
	p.adopted[r.Ref] = o.actual
	return ""
}

// NotAdopted says which resources of other systems, that claims are about, cannot be the cluster's.
func NotAdopted(want *Set, have *Inventory) []Problem { return newPlanner(want, have).adopt() }
