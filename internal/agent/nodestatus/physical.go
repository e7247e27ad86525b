// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"slices"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
)

// publishPhysicalNetworks has the node's object say which physical networks the node is connected
// to, once the backend has looked.
func (s *Status) publishPhysicalNetworks() {
	known, own := s.PhysicalNetworks(), s.Own()
	if known == nil || own == nil {
		return
	}
	var all []string
	for u := range s.Intent.State().Uplinks().All() {
		all = append(all, u.Physical)
	}
	before, written := own.Annotations[v1alpha1.AnnotationPhysicalNetworks]
	if now := physicalNetworks(all, known, before); !written || now != before {
		s.Writer.NodePhysicalNetworks(now)
	}
}

// physicalNetworks is the annotation of a node with these physical networks. One that is not known
// to be connected or not stays as it was: the controller takes addresses away from nodes that are
// not connected.
func physicalNetworks(all []string, known map[string]bool, before string) string {
	written := strings.Split(before, ",")
	var list []string
	for _, name := range all {
		if connected, ok := known[name]; connected || !ok && slices.Contains(written, name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
