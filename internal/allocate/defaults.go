// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// DefaultObjects are the Network and the Router that pods join unless something else is asked for,
// as API objects. Agents work without them; they are there to be seen, and to be named by others.
func DefaultObjects() (*v1alpha1.Network, *v1alpha1.Router) {
	made := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}
	vni := int32(1)
	network := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.DefaultNetwork, Labels: made, Finalizers: []string{v1alpha1.FinalizerInUse},
		},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, VNI: &vni, Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR,
			Router: v1alpha1.DefaultRouter,
		},
	}
	router := &v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.DefaultRouter, Labels: made, Finalizers: []string{v1alpha1.FinalizerInUse},
		},
		Spec: v1alpha1.RouterSpec{
			ImportRouteTargets: []string{v1alpha1.DefaultRouteTarget},
			ExportRouteTargets: []string{v1alpha1.DefaultRouteTarget},
		},
	}
	return network, router
}

// MissingRouters are those that Networks have for themselves, because they name none, and that are
// not there, sorted by name. A Router goes with its Network.
func MissingRouters(networks []*v1alpha1.Network, routers []*v1alpha1.Router) []*v1alpha1.Router {
	there := map[string]bool{v1alpha1.DefaultRouter: true}
	for _, r := range routers {
		there[r.Name] = true
	}
	var missing []*v1alpha1.Router
	for _, n := range networks {
		if n.DeletionTimestamp != nil || n.Spec.Router != "" || translate.EffectiveRouter(n) != n.Name ||
			there[n.Name] {
			continue
		}
		missing = append(missing, &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
			Finalizers: []string{v1alpha1.FinalizerInUse},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Network", Name: n.Name, UID: n.UID,
			}},
		}})
	}
	slices.SortFunc(missing, func(a, b *v1alpha1.Router) int { return cmp.Compare(a.Name, b.Name) })
	return missing
}

// Orphans are the Routers that were made for a Network that is gone.
func Orphans(networks []*v1alpha1.Network, routers []*v1alpha1.Router) []*v1alpha1.Router {
	there := map[string]bool{}
	for _, n := range networks {
		there[string(n.UID)] = true
	}
	var orphans []*v1alpha1.Router
	for _, r := range routers {
		owned := r.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByController && len(r.OwnerReferences) > 0
		if owned && r.DeletionTimestamp == nil &&
			!slices.ContainsFunc(r.OwnerReferences, func(o metav1.OwnerReference) bool {
				return there[string(o.UID)]
			}) {
			orphans = append(orphans, r)
		}
	}
	return orphans
}
