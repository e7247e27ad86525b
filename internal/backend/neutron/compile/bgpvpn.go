// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// maxTargets is how many characters a list of targets may have in Neutron's database, with one
// between each two.
const maxTargets = 255

// exchange is what Routers' route targets come to.
type exchange struct {
	// with are the Routers with a BGPVPN. exported are the targets that Routers export, but for the
	// Router default: its routes are imported by BGPVPNs alone.
	with, exported map[string]bool
}

// exchange looks at all Routers. Shared ones are one router of Neutron, and what one of them
// exports or imports would be of all: that has the targets of the Router default.
func (c *compiler) exchange() exchange {
	x := exchange{map[string]bool{}, map[string]bool{}}
	for r := range c.state.Routers().All() {
		x.with[r.Name] = c.BGPVPNs.Usable() && targeted(r) && RouterOf(r) == r.Name && !c.idle(r)
		for _, t := range r.ExportTargets {
			x.exported[t] = x.exported[t] || r.Name != intent.DefaultRouterName
		}
	}
	return x
}

// targeted reports whether a Router has route targets.
func targeted(r intent.Router) bool { return len(r.ImportTargets)+len(r.ExportTargets) > 0 }

// bgpvpn makes the BGPVPN of a Router with route targets, and the place of the Router's router in
// it.
func (c *compiler) bgpvpn(r intent.Router) {
	if !c.targets.with[r.Name] {
		c.exchangesNot(r)
		return
	}
	object := RouterObject(r.Name)
	without := slices.DeleteFunc(slices.Clone(r.Imports), func(other string) bool { return c.targets.with[other] })
	if len(without) > 0 {
		c.set.Problem(object, "ImportsUnsupported", "these Routers have no BGPVPN of Neutron, and export nothing: "+
			strings.Join(without, ", "))
	}
	attributes := targetsOf(r)
	long := 0
	for _, list := range attributes {
		long = max(long, len(fmt.Sprint(list))-len("[]"))
	}
	if long > maxTargets {
		c.set.Problem(object, "TooManyTargets", fmt.Sprintf("its BGPVPN of Neutron stays as it was, if there is one: it has room for "+
			"%d characters of targets that are imported, exported, or both, and these are %d; use fewer", maxTargets, long))
		attributes = nil
	}
	router := RouterRef(r.Name)
	vpn := c.set.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.BGPVPN, Key: router.Key}, Object: object,
		Fixed: resource.Attributes{"type": "l3"}, Mutable: attributes, Optional: attributes == nil,
	})
	c.set.Add(resource.Resource{
		Ref: resource.AssociationOf(vpn, router), Object: object,
		Fixed: resource.Attributes{"bgpvpn_id": vpn, "router_id": router}, Optional: attributes == nil,
	})
}

// targetsOf are the attributes of a Router's BGPVPN, all lists.
func targetsOf(r intent.Router) resource.Attributes {
	both, imports, exports, distinguishers := []any{}, []any{}, []any{}, []any{}
	for _, t := range r.ImportTargets {
		if slices.Contains(r.ExportTargets, t) {
			both = append(both, t)
		} else {
			imports = append(imports, t)
		}
	}
	for _, t := range r.ExportTargets {
		if !slices.Contains(r.ImportTargets, t) {
			exports = append(exports, t)
		}
	}
	if r.Distinguisher != "" {
		distinguishers = append(distinguishers, r.Distinguisher)
	}
	return resource.Attributes{
		"route_targets": both, "import_targets": imports, "export_targets": exports,
		"route_distinguishers": distinguishers,
	}
}

// exchangesNot says what a Router lacks without a BGPVPN. What it exports is a problem of those
// that import it; of what none imports it is not known whether anything is to.
func (c *compiler) exchangesNot(r intent.Router) {
	object := RouterObject(r.Name)
	beyond := slices.DeleteFunc(slices.Clone(r.ImportTargets), func(t string) bool {
		return c.targets.exported[t] || slices.Contains(r.ExportTargets, t)
	})
	switch {
	case !targeted(r):
	case c.BGPVPNs.Reason != "":
		c.set.Problem(object, c.BGPVPNs.Reason, c.BGPVPNs.Why)
	case !c.BGPVPNs.Missing && RouterOf(r) != r.Name:
		c.set.Problem(object, "TargetsUnsupported", "shared Routers are one router of Neutron: their route targets other than "+
			"64512:1 have no effect; give them to the Router default, for the routes of all, or make the Router private")
	case !c.BGPVPNs.Missing:
		c.set.Problem(object, "TargetsUnsupported", "its Networks are on networks that are not Coelan's, which have routers of "+
			"their own: BGPVPNs are made there")
	case len(r.Imports) > 0:
		c.set.Problem(object, "ImportsUnsupported", "routers of Neutron without BGPVPNs do not know each other's routes: "+
			noBGPVPNs)
	case len(beyond) > 0:
		c.set.Problem(object, "ImportsUnsupported", "routes with "+strings.Join(beyond, ", ")+", from outside the "+
			"cluster or of the Router default, come by BGPVPNs alone: "+noBGPVPNs)
	}
}

const noBGPVPNs = "Neutron's administrator adds bgpvpn to service_plugins of neutron.conf"
