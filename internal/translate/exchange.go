// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"slices"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
)

// spaceID numbers the spaces of addresses of Routers: all shared ones have one together, every other one its own.
type spaceID int

const sharedSpace spaceID = 0

// exchange knows whose routes meet. Two Routers' do if one of them imports the other's, or a third one both.
type exchange struct {
	routers   []*v1alpha1.Router
	index     map[string]int // by name
	exporters map[string][]int
	importers map[string][]int
	meeting   map[string][]spaceID // by what a Router imports and exports
}

func newExchange(routers []*v1alpha1.Router) *exchange {
	x := &exchange{
		routers: routers, index: map[string]int{},
		exporters: map[string][]int{}, importers: map[string][]int{}, meeting: map[string][]spaceID{},
	}
	for i, r := range routers {
		x.index[r.Name] = i
		for _, t := range targets(r.Spec.ExportRouteTargets) {
			x.exporters[t] = append(x.exporters[t], i)
		}
		for _, t := range targets(r.Spec.ImportRouteTargets) {
			x.importers[t] = append(x.importers[t], i)
		}
	}
	return x
}

// targets are those that are not of the Router default: being shared stands for these, in both directions or not at all.
func targets(list []string) []string {
	rest := make([]string, 0, len(list))
	for _, t := range list {
		if t != v1alpha1.DefaultRouteTarget {
			rest = append(rest, t)
		}
	}
	return rest
}

// shares says that a Router exchanges routes with the Router default, whose space of addresses is the cluster's.
func shares(r *v1alpha1.Router) bool {
	return slices.Contains(r.Spec.ImportRouteTargets, v1alpha1.DefaultRouteTarget) &&
		slices.Contains(r.Spec.ExportRouteTargets, v1alpha1.DefaultRouteTarget)
}

// own is the space that the Router's Networks are in.
func (x *exchange) own(name string) spaceID {
	i := x.index[name]
	if shares(x.routers[i]) {
		return sharedSpace
	}
	return spaceID(i + 1)
}

// spaces are those that a prefix of a Network in the Router must not be in, the Router's own first.
func (x *exchange) spaces(name string) []spaceID {
	r := x.routers[x.index[name]]
	own := x.own(name)
	list := []spaceID{own}
	for _, s := range x.others(r) {
		if s != own {
			list = append(list, s)
		}
	}
	return list
}

// others are worked out once for all Routers that import and export the same.
func (x *exchange) others(r *v1alpha1.Router) []spaceID {
	key := strings.Join(slices.Sorted(slices.Values(r.Spec.ImportRouteTargets)), " ") + "/" +
		strings.Join(slices.Sorted(slices.Values(r.Spec.ExportRouteTargets)), " ")
	if list, known := x.meeting[key]; known {
		return list
	}
	found := map[spaceID]bool{}
	x.addImports(found, r)
	for _, t := range targets(r.Spec.ExportRouteTargets) {
		for _, i := range x.importers[t] {
			found[x.own(x.routers[i].Name)] = true
			x.addImports(found, x.routers[i])
		}
	}
	if shares(r) {
		// The others that share import it as well, and what they import besides meets it there.
		for _, o := range x.routers {
			if shares(o) {
				x.addImports(found, o)
			}
		}
	}
	list := make([]spaceID, 0, len(found))
	for s := range found {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b spaceID) int { return cmp.Compare(a, b) })
	x.meeting[key] = list
	return list
}

// addImports adds the spaces that a Router has routes into beside its own.
func (x *exchange) addImports(found map[spaceID]bool, r *v1alpha1.Router) {
	if shares(r) {
		found[sharedSpace] = true
	}
	for _, t := range targets(r.Spec.ImportRouteTargets) {
		for _, i := range x.exporters[t] {
			found[x.own(x.routers[i].Name)] = true
		}
	}
}
