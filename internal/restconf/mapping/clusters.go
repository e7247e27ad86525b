// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"maps"
	"slices"

	"github.com/openconfig/ygot/ygot"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/restconf/yangmodel"
)

type clusterEntry = yangmodel.K8SCluster_K8SClustersInfo_K8SClusters

// clusters are this one, and those that other entries are of. Of an entry that is written it is
// only checked that it is one of them.
func clusters() *List {
	return &List{
		Container: "k8s-clusters-info", Name: "k8s-clusters",
		Reads: []Resource{Ports, Services, Namespaces},
		New:   func() ygot.GoStruct { return &clusterEntry{} },
		Entries: func(w *World) []ygot.GoStruct {
			var list []*clusterEntry
			for _, id := range clusterIDs(w) {
				list = append(list, &clusterEntry{ClusterId: ygot.String(id)})
			}
			return structs(list)
		},
		Write: writer(func(w *World, e *clusterEntry) error {
			if slices.Contains(clusterIDs(w), text(e.ClusterId)) {
				return nil
			}
			return unsupported("cluster-id",
				"is not this cluster, nor that of a pod or Service: it is known when there is one, and needs no entry")
		}),
		Kept: clusterIDs,
	}
}

// clusterIDs are the ids of all known clusters. That of this one is the uid of kube-system, which a
// cluster has all its life.
func clusterIDs(w *World) []string {
	all := map[string]bool{}
	if n := w.Namespaces[metav1.NamespaceSystem]; n != nil {
		all[string(n.UID)] = true
	}
	for _, p := range sortedPorts(w, false) {
		all[readExtra(p).ClusterID] = true
	}
	for _, s := range sortedServices(w) {
		all[readServiceExtra(s).ClusterID] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}
