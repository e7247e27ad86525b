// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Claim says that a resource which another system has made is to be the cluster's.
type Claim struct {
	Kind Kind
	ID   string
	// By names the object that says so, for messages.
	By string
	// Ref is what the resource becomes, in whichever project that is wanted. A port without one
	// becomes the port that is wanted with its MAC for its device, which may not be there yet.
	Ref         Ref
	MAC, Device string
	// Asker is the UID of the object that asks for the resource: what another object of the same
	// name has been told is no answer for it.
	Asker string
	// Has proves that the resource is what the other system has made: each attribute must have one
	// of the values, which may be Refs.
	Has map[string][]any
	// Or is another proof, which is tried if Has fails; nil: there is none.
	Or map[string][]any
	// Addresses are those that a port has; nil: any.
	Addresses []string
	// Trunk is the name of the node that has the trunk which a port will be on; empty: none.
	Trunk string
	// Refused says why it cannot be the cluster's; empty: it can.
	Refused string
	// Kept says that it is given back when it is not wanted any more, where others are deleted.
	Kept bool
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

// Ask replaces the Claims of resources that objects name. It returns those of which it has to be
// looked what there is: Answer takes that.
func (i *Inventory) Ask(claims []Claim) (unknown []Claim) {
	var asked []offer
	for _, c := range claims {
		known := slices.IndexFunc(i.asked, func(o offer) bool { return reflect.DeepEqual(o.Claim, c) })
		looked, was := i.looked[c.Ref]
		_, taken := i.resources[c.Ref]
		switch {
		case known >= 0:
			asked = append(asked, i.asked[known])
		case was && reflect.DeepEqual(looked.Claim, c):
			asked = append(asked, looked)
		case c.Refused != "": // whatever there is
			asked = append(asked, offer{Claim: c})
		case !taken || c.MAC == "": // without a MAC it is only asked about
			unknown = append(unknown, c)
		}
	}
	i.asked = asked
	return unknown
}

// Answer adds what there is of a Claim that Ask has returned; false: nothing.
func (i *Inventory) Answer(c Claim, a Actual, there bool) {
	o := offer{c, a, there}
	i.asked = append(i.asked, o)
	if c.MAC != "" { // else it is not asked about once more
		i.looked[c.Ref] = o
	}
}

// Judge calls answered for each Claim of Ask: with what there is, and with why it cannot be the
// cluster's.
func Judge(want *Set, have *Inventory, answered func(c Claim, a Actual, why string)) {
	p := newPlanner(want, have)
	for _, o := range have.asked {
		answered(o.Claim, o.actual, p.unproven(o))
	}
}

// unproven says why a resource is not what its Claim says; empty: it is.
func (p *planner) unproven(o offer) string {
	if o.Refused != "" {
		return o.Refused
	}
	if !o.there {
		return "the project has none of this id that is not Coelan's already"
	}
	if why := p.misplaced(o); why != "" {
		return why
	}
	if why := p.lacks(o.actual, o.Has); why != "" && (o.Or == nil || p.lacks(o.actual, o.Or) != "") {
		return why
	}
	if has := o.actual.Addresses(); o.Addresses != nil && !sameElements(has, o.Addresses) {
		return fmt.Sprintf("its addresses are %v, and not %v", has, o.Addresses)
	}
	return ""
}

// lacks says which attribute of a resource has none of the values that it is to have; empty: none.
func (p *planner) lacks(a Actual, has map[string][]any) string {
	for _, name := range slices.Sorted(maps.Keys(has)) {
		value := a.Attributes[name]
		if name == deviceID && value == "" {
			value = a.Device
		}
		if !slices.ContainsFunc(has[name], func(one any) bool { return p.resolved(one) == value }) {
			return fmt.Sprintf("%s is %v, and not %v", name, cmp.Or(value, "empty"), p.resolved(has[name][0]))
		}
	}
	return ""
}

// Addresses are those of a port.
func (a Actual) Addresses() []string {
	var addresses []string
	for _, ip := range list(a.Attributes["fixed_ips"]) {
		fixed, _ := ip.(map[string]any)
		addresses = append(addresses, text(oneText(fixed["ip_address"])))
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
	offers := slices.Concat(p.have.offers, p.have.asked)
	if len(offers) == 0 {
		return nil
	}
	devices := map[interfaceOf]Resource{}
	for _, r := range p.want.All(Port) {
		devices[interfaceOf{r.Mutable["device_id"], r.Fixed["mac_address"]}] = r
	}
	named := map[Ref]Resource{}
	for ref, r := range p.want.resources {
		named[ref.In("")] = r
	}
	for _, o := range offers {
		r, wanted := named[o.Ref.In("")]
		if o.Ref == (Ref{}) {
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
	case there && (a.ID == o.ID || o.ID == ""): // what named it may be gone by now
		return ""
	case there:
		return fmt.Sprintf("there is already the %s %s", o.Kind, a.ID)
	}
	if other, taken := p.adopters[o.ID]; taken {
		return "it is to be " + other.String()
	}
	if why := p.unproven(o); why != "" {
		return why
	}
	if in := p.have.ProjectOf(o.actual); in != r.Project {
		return fmt.Sprintf("it is in the project %s, and not in %s",
			cmp.Or(in, p.have.Own), cmp.Or(r.Project, p.have.Own))
	}
	if names := slices.Sorted(maps.Keys(p.differing(r.Fixed, o.actual))); len(names) > 0 {
		return fmt.Sprintf("its %s %v is not what the object asks for", names[0], o.actual.Attributes[names[0]])
	}
	a = o.actual
	a.Kept = o.Kept
	p.adopted[r.Ref], p.adopters[o.ID] = a, r.Ref
	return ""
}

// NotAdopted says which resources of other systems, that claims are about, cannot be the cluster's.
func NotAdopted(want *Set, have *Inventory) []Problem { return newPlanner(want, have).adopt() }
