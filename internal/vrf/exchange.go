// SPDX-License-Identifier: Apache-2.0

package vrf

import (
	"cmp"
	"slices"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
)

// SpaceID numbers the spaces of addresses of Routers: all shared ones have one together, every
// other one its own.
type SpaceID int

// SharedSpace is that of all shared Routers.
const SharedSpace SpaceID = 0

// Exchange knows which Routers' routes meet. Two Routers' do if one of them imports the other's, or
// a third one both.
type Exchange struct {
	routers   []*v1alpha1.Router
	index     map[string]int // by name
	exporters map[string][]int
	importers map[string][]int
	meeting   map[string][]SpaceID // by what a Router imports and exports
}

// NewExchange reads the Routers' route targets.
func NewExchange(routers []*v1alpha1.Router) *Exchange {
	x := &Exchange{
		routers: routers, index: map[string]int{},
		exporters: map[string][]int{}, importers: map[string][]int{}, meeting: map[string][]SpaceID{},
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

// targets are those that are not of the Router default: being shared stands for these, in both
// directions or not at all.
func targets(list []string) []string {
	rest := make([]string, 0, len(list))
	for _, t := range list {
		if t != v1alpha1.DefaultRouteTarget {
			rest = append(rest, t)
		}
	}
	return rest
}

// Shares says that a Router exchanges routes with the Router default, so that it shares the
// cluster's address space.
func Shares(r *v1alpha1.Router) bool {
	return slices.Contains(r.Spec.ImportRouteTargets, v1alpha1.DefaultRouteTarget) &&
		slices.Contains(r.Spec.ExportRouteTargets, v1alpha1.DefaultRouteTarget)
}

// Router returns the Router of a name.
func (x *Exchange) Router(name string) (*v1alpha1.Router, bool) {
	i, known := x.index[name]
	if !known {
		return nil, false
	}
	return x.routers[i], true
}

// Own is the space that the Router's Networks are in.
func (x *Exchange) Own(name string) SpaceID {
	i := x.index[name]
	if Shares(x.routers[i]) {
		return SharedSpace
	}
	return SpaceID(i + 1)
}

// Spaces are those that a prefix of a Network in the Router must not be in, the Router's own first.
func (x *Exchange) Spaces(name string) []SpaceID {
	r := x.routers[x.index[name]]
	own := x.Own(name)
	list := []SpaceID{own}
	for _, s := range x.others(r) {
		if s != own {
			list = append(list, s)
		}
	}
	return list
}

// others are computed once for all Routers that import and export the same.
func (x *Exchange) others(r *v1alpha1.Router) []SpaceID {
	key := strings.Join(slices.Sorted(slices.Values(r.Spec.ImportRouteTargets)), " ") + "/" +
		strings.Join(slices.Sorted(slices.Values(r.Spec.ExportRouteTargets)), " ")
	if list, known := x.meeting[key]; known {
		return list
	}
	found := map[SpaceID]bool{}
	x.addImports(found, r)
	for _, t := range targets(r.Spec.ExportRouteTargets) {
		for _, i := range x.importers[t] {
			found[x.Own(x.routers[i].Name)] = true
			x.addImports(found, x.routers[i])
		}
	}
	if Shares(r) {
		// The others that share import it as well, and what they import besides meets it there.
		for _, o := range x.routers {
			if Shares(o) {
				x.addImports(found, o)
			}
		}
	}
	list := make([]SpaceID, 0, len(found))
	for s := range found {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b SpaceID) int { return cmp.Compare(a, b) })
	x.meeting[key] = list
	return list
}

// addImports adds the spaces that a Router has routes into beside its own.
func (x *Exchange) addImports(found map[SpaceID]bool, r *v1alpha1.Router) {
	if Shares(r) {
		found[SharedSpace] = true
	}
	for _, t := range targets(r.Spec.ImportRouteTargets) {
		for _, i := range x.exporters[t] {
			found[x.Own(x.routers[i].Name)] = true
		}
	}
}
