// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

func byName(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) }

// Status is the status of a configuration, from the reports of the nodes that it holds for. The
// condition has no times: it is to be set among those that the object has.
func Status(
	c *v1alpha1.NodeNetworkConfig, nodes []*corev1.Node, choice Choice,
) (v1alpha1.NodeNetworkConfigStatus, metav1.Condition) {
	var s v1alpha1.NodeNetworkConfigStatus
	refused := 0
	for _, n := range nodes {
		if holds := choice.Of[n.Name]; holds == nil || holds.Name != c.Name {
			continue
		}
		s.SelectedNodes++
		entry, refuses := ofNode(c, n)
		if refuses {
			refused++
		}
		if entry.Message == "" && entry.AppliedGeneration == c.Generation {
			s.AppliedNodes++
			if t := entry.AppliedTime; s.LastAppliedTime == nil || s.LastAppliedTime.Before(t) {
				s.LastAppliedTime = t
			}
		}
		s.Nodes = append(s.Nodes, entry)
	}
	rank := func(n v1alpha1.NodeNetworkConfigNode) int {
		switch {
		case n.Message != "":
			return 0
		case n.AppliedGeneration != c.Generation:
			return 1
		}
		return 2
	}
	slices.SortFunc(s.Nodes, func(a, b v1alpha1.NodeNetworkConfigNode) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	condition := ready(c, s, refused, choice.Taken[c.Name])
	s.Nodes = s.Nodes[:min(len(s.Nodes), v1alpha1.MaxNodesInStatus)]
	return s, condition
}

// ofNode is what one node reports, and whether it refuses the configuration as it is now.
func ofNode(c *v1alpha1.NodeNetworkConfig, n *corev1.Node) (v1alpha1.NodeNetworkConfigNode, bool) {
	r, entry := ReportOf(n), v1alpha1.NodeNetworkConfigNode{Name: n.Name}
	if r.Applied != nil && r.Applied.UID == string(c.UID) {
		// The API has times in seconds.
		at := metav1.NewTime(r.Applied.Time).Rfc3339Copy()
		entry.AppliedGeneration, entry.AppliedTime = r.Applied.Generation, &at
	}
	if r.Refused != nil && r.Refused.UID == string(c.UID) && r.Refused.Generation == c.Generation {
		entry.Message = r.Refused.Message
		return entry, true
	}
	if entry.AppliedGeneration != c.Generation {
		entry.Message = r.Problem
	}
	return entry, false
}

// ready sums up.
func ready(
	c *v1alpha1.NodeNetworkConfig, s v1alpha1.NodeNetworkConfigStatus, refused int, taken []Taken,
) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: c.Generation,
	}
	progress := fmt.Sprintf("%d of %d nodes run with it", s.AppliedNodes, s.SelectedNodes)
	first := v1alpha1.NodeNetworkConfigNode{}
	if len(s.Nodes) > 0 {
		first = s.Nodes[0]
	}
	err := Check(c.Spec)
	switch {
	case err != nil:
		condition.Reason, condition.Message = v1alpha1.ReasonInvalid, cut(err.Error())
	case len(taken) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonNodesTaken, progress+"; "+conflict(c, taken)
	case s.SelectedNodes == 0:
		condition.Reason = v1alpha1.ReasonNoNode
		condition.Message = "it holds for no node: none has that name or these labels, or others name all of them"
	case refused > 0:
		condition.Reason = v1alpha1.ReasonRefusedByNodes
		condition.Message = fmt.Sprintf("%s, %d refuse it, such as %s: %s", progress, refused, first.Name,
			first.Message)
	case s.AppliedNodes < s.SelectedNodes && first.Message != "":
		condition.Reason = v1alpha1.ReasonPending
		condition.Message = fmt.Sprintf("%s; node %s: %s", progress, first.Name, first.Message)
	case s.AppliedNodes < s.SelectedNodes:
		condition.Reason = v1alpha1.ReasonPending
		condition.Message = fmt.Sprintf("%s; node %s has not applied it yet", progress, first.Name)
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, progress
	}
	return condition
}

// conflict names both configurations.
func conflict(c *v1alpha1.NodeNetworkConfig, taken []Taken) string {
	text := fmt.Sprintf("node %s has nodenetworkconfig %s, which is older than %s", taken[0].Node, taken[0].By, c.Name)
	if more := len(taken) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more nodes have older ones", more)
	}
	return text + ": select other nodes by one of them"
}
